"""Errors of the data source. Each message names cause and cure."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def plainly(call: Callable[P, T]) -> Callable[P, T]:
    """Have our own errors leave a call without the way that they came.

    PySpark puts that in front of the message, and where we have looked tells nobody anything.
    """

    @functools.wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except SourceError as error:
            raise error.with_traceback(None) from None

    return told


class SourceError(Exception):
    """Base of the source's own errors."""


class OptionError(SourceError, ValueError):
    """An option is unknown or its value is wrong."""


class OffsetError(SourceError, ValueError):
    """Offsets are unreadable, or belong to another source."""


class SinkError(SourceError):
    """The sink cannot write rows, or brokers did not accept them."""


class DataLossError(SourceError):
    """Messages that the query needs are gone, or never existed."""


class FencedError(SourceError):
    """Another run of the pipeline took over: this one writes nothing more."""


class TableError(SourceError):
    """A table contradicts its commits, or rows would be in it twice or never."""


class RejectedError(SourceError):
    """More messages do not fit than the user lets pass."""
