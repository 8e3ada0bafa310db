"""Why an expression is no filter."""

from __future__ import annotations

from imago_wire.errors import WrongError


class FilterError(WrongError):
    """The expression is refused; the text says why, in RocketMQ's words where it has some."""


class NoValueError(Exception):
    """Values that cannot be compared met in a message: RocketMQ's filter fails, nothing matches."""


class FilterPendingError(Exception):
    """An expression that this turn has no time left to compile: ask in the next one."""
