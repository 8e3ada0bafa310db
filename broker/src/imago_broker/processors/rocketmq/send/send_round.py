"""A round of sends: beside their entries, what becomes of those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.puts.sequencing import Numbers
from imago_broker.processors.rocketmq.sending_session import SendingSession
from imago_broker.processors.rounds import Round
from imago_wire.remoting.scanning.items import AskedSend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_broker.service.transactions.half_appends import HalfRun


class SendRound(Round[SendingSession, AskedSend]):
    """Entries may be half messages, and messages of idempotent producers."""

    __slots__ = ("halves", "numbered", "numbers", "turn")

    def __init__(self, level: Acknowledgement, born_ms: int = 0) -> None:
        super().__init__(level, born_ms)
        self.halves: HalfRun | None = None
        self.numbered: list[tuple[int, str, int, int]] | None = None
        """What idempotent producers claim: the entry, producer, epoch and number."""
        self.numbers: dict[int, Numbers] | None = None
        """The same of a round of one message."""
        self.turn = -1
        """That in which it has such."""

    def note_numbers(self, taken: list[tuple[int, str, int, int]], turn: int) -> None:
        """Note what is claimed for entries that were added: all there are."""
        self.numbered, self.turn = taken, turn

    def one_by_one(self) -> Iterator[SendRound]:
        """Return the same as rounds of one message each, their numbers aside."""
        numbers = {
            index: Numbers(producer, epoch, number, 1)
            for index, producer, epoch, number in self.numbered or ()
        }
        for peer, first, end in self.runs:
            for index in range(first, end):
                alone = SendRound(self.level, self.born_ms)
                alone.entries.append(self.entries[index])
                alone.asked.append(self.asked[index])
                alone.runs.append((peer, 0, 1))
                if self.halves is not None:
                    alone.halves = self.halves.part(index)
                if index in numbers:
                    alone.numbers = {0: numbers[index]}
                yield alone
