"""Whether a store is open and leads, and what ended it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.errors import LogIOError, NotLeadingError, StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log.signals import Signal


class StoreStatus:
    """The one place that decides whether appends are allowed. `fail` in any thread."""

    def __init__(self, on_failure: Signal[StoreError], *, leading: bool) -> None:
        self._on_failure = on_failure
        self.leading = leading
        """Whether this member writes the log; a follower takes it from the leader."""
        self.closed = False
        self.failure: StoreError | None = None
        """The error that ended the store."""
        self.barred = not leading
        """Whether nothing may be appended: closed, or not leading."""

    def lead(self) -> None:
        """Append from now on."""
        self.leading, self.barred = True, self.closed

    def follow(self) -> None:
        """Refuse appends; take a leader's bytes."""
        self.leading, self.barred = False, True

    def close(self) -> None:
        """Refuse everything."""
        self.closed = self.barred = True

    def fail(self, error: StoreError) -> None:
        """End the store: its owner hears of the first failure."""
        first = self.failure is None
        self.failure = self.failure or error
        self.close()
        if first:
            self._on_failure(error)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """End the store when the operating system refuses something."""
        try:
            yield
        except LogIOError as error:
            self.fail(error)
            raise

    def check_open(self) -> None:
        """Raise StoreClosedError unless the store is open."""
        if self.closed:
            raise self.reason()

    def reason(self) -> StoreError:
        """Return the reason why appends are refused."""
        if not self.closed:
            return NotLeadingError("this member of the shard does not lead")
        error = StoreClosedError("the store is closed")
        error.__cause__ = self.failure
        return error
