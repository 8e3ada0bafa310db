"""Having what is damaged in our log sent by another member.

One question at a time, and each answer is put back before the next is asked for: a range may be as
long as a file of the log, and other work is done in between. An answer is not believed: whoever
heals checks every record before it is written in place, and what stays damaged is asked for again,
of the next member.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 << 10
"""Most that is asked for at once."""
WHOLE_BYTES_MAX = 32 << 20
"""No record, and no end of a file without one, is longer: twice the largest message."""
ANSWER_MS = 5000
"""How long an answer may take."""
PAUSE_MS = 1000
"""Between two questions about a range that nobody could help with."""


class Damaged(Protocol):
    """Log offsets `start` … `end` that are out of service."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class Asker(Protocol):
    """A connection to a member that may have the bytes."""

    def ask_repair(self, offset: int, size: int) -> None:
        """Ask it for these bytes of the log."""
        ...


class _Question(NamedTuple):
    start: int
    end: int
    have: tuple[bytes, ...]
    """What came of a record that is not whole yet."""
    until_ms: int

    @property
    def offset(self) -> int:
        """Log offset of the next bytes that are missing."""
        return self.start + sum(map(len, self.have))


class Repairs:
    """Asks, while anything is damaged; told the answers by whichever connection they come on."""

    def __init__(
        self,
        damaged: Callable[[], Sequence[Damaged]],
        heal: Callable[[int, bytes], int],
        visible_end: Callable[[], int],
    ) -> None:
        """`heal(offset, data)` checks and writes the front of a range, and says how much of it.

        Without data it says that nothing more comes for now.
        Only what ends below `visible_end` is asked for: above it members' logs may differ.
        """
        self.healed = 0
        """Ranges put back into service."""
        self.failed = 0
        """Answers that did not help."""
        self._damaged = damaged
        self._heal = heal
        self._visible_end = visible_end
        self._question: _Question | None = None
        self._turn = 0
        self._not_before_ms = 0

    def tick(self, now_ms: int, askers: Sequence[Asker]) -> None:
        """Ask for the first damaged range, unless an answer is on its way."""
        if self._question is not None:
            if now_ms < self._question.until_ms:
                return
            self._give_up(now_ms)
        if not askers or now_ms < self._not_before_ms:
            return
        for found in self._damaged():
            if found.end <= self._visible_end():
                self._turn += 1
                question = _Question(found.start, found.end, (), now_ms + ANSWER_MS)
                self._ask(question, askers[self._turn % len(askers)])
                return

    def answered(self, asker: Asker, offset: int, data: memoryview, now_ms: int) -> None:
        """Take an answer; what was not asked for is dropped."""
        question = self._question
        if question is None or offset != question.offset:
            return
        start, end = question.start, question.end
        got = b"".join((*question.have, data))
        if not data or start + len(got) > end:
            self._failed(question, f"{len(data)} bytes at {offset}", now_ms)
            return
        size = self._heal(start, got)
        if start + size == end:
            self._question = None
            self.healed += 1
            logger.info("log_healed to=%d", end)
        elif not size and (start + len(got) == end or len(got) > WHOLE_BYTES_MAX):
            self._failed(question, "the bytes do not fit", now_ms)
        else:
            self._ask(_Question(start + size, end, (got[size:],), now_ms + ANSWER_MS), asker)

    def _ask(self, question: _Question, asker: Asker) -> None:
        self._question = question
        asker.ask_repair(question.offset, min(question.end - question.offset, CHUNK_BYTES))

    def _failed(self, question: _Question, reason: str, now_ms: int) -> None:
        logger.warning(
            "log_not_healed from=%d to=%d reason=%s", question.start, question.end, reason
        )
        self._give_up(now_ms)

    def _give_up(self, now_ms: int) -> None:
        if self._question is not None:
            self._heal(self._question.start, b"")
        self._question = None
        self.failed += 1
        self._not_before_ms = now_ms + PAUSE_MS
