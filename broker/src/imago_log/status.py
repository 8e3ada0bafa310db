"""Whether a store is open and leads, and what ended it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.errors import LogIOError, NotLeadingError, StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log.signals import Signal


class StoreStatus:
    """The one place that says whether anything may be appended. `fail` in any thread."""

    def __init__(self, on_failure: Signal[StoreError], *, leading: bool) -> None:
        self._on_failure = on_failure
        self.leading = leading
        """Whether this member writes the log; a follower takes it from the leader."""
        self.closed = False
        self.failure: StoreError | None = None
        """What ended the store."""
        self.barred = not leading
        """Whether nothing may be appended: closed, or not leading."""

    def lead(self) -> None:
        """Append from now on."""
        self.leading, self.barred = True, self.closed

    def follow(self) -> None:
        """Append no more; a leader's bytes are taken."""
        self.leading, self.barred = False, True

    def close(self) -> None:
        """Take nothing any more."""
        self.closed = self.barred = True

    def fail(self, error: StoreError) -> None:
        """End the store: the first failure is told to its owner."""
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
        """Return why nothing is appended."""
        if not self.closed:
            return NotLeadingError("this member of the shard does not lead")
        error = StoreClosedError("the store is closed")
        error.__cause__ = self.failure
        return error
