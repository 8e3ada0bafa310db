"""What can go wrong in a pass, by what is to be done about it."""

from __future__ import annotations


class OperatorError(Exception):
    """Base of everything that the loop answers; anything else is a bug."""


class RetryError(OperatorError):
    """A call failed for a reason that passes: look again in `delay_s` seconds."""

    def __init__(self, reason: str, *, delay_s: float) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


class BlockedError(OperatorError):
    """Nothing is wrong, but a fact has to change first; `until` names it."""

    def __init__(self, reason: str, *, until: str) -> None:
        super().__init__(reason)
        self.until = until

    @property
    def reason(self) -> str:
        """What a condition says of a call to Kubernetes that was refused."""
        return "QuotaExceeded" if "quota" in self.until else "PermissionDenied"

    @property
    def told(self) -> str:
        """What a condition says beside it: what was refused, and what helps."""
        return f"{self}; it goes on when {self.until}."


class TakenBackError(BlockedError):
    """This very request was taken back since: it takes another one."""


class InvalidError(OperatorError):
    """The resource itself is wrong: nothing happens until it has a new generation."""
