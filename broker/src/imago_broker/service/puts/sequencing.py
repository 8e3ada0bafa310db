"""Puts of idempotent producers: each message is in the log once, however often it is sent.

A put is judged when it comes. What is new of one producer for one queue goes, for the length of a
turn, into one put of the message service, so that all of it is appended or none: a number never
gets into the log before the one below it. A repeat of what the turn has gathered is answered with
it; a repeat of what is in the log waits, as a put of its own would, until all that is in the log by
then has reached the level. So no repeat is confirmed before its original.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.core.puts.sequencing import UNKNOWN, Gathered, ProducerState, Verdict, judge
from imago_wire.record_format.entries import ENTRY_TAIL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_broker.core.puts.sequencing import Numbers
    from imago_broker.service.puts.acknowledgements import Done
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.puts.put_status import PutStatus
    from imago_wire.records.record import Entry, Placed, QueueTail

logger = logging.getLogger(__name__)

NOWHERE: Placed = (-1, -1, 0, -1, -1)
"""Stands for a message that is in the log, further back than its place is remembered."""


class SequenceRefusal(NamedTuple):
    """Why messages were not taken: OUT_OF_ORDER or FENCED, and what was known of their sender."""

    verdict: Verdict
    state: ProducerState


class _Share(NamedTuple):
    """One request's part of a group."""

    at: int
    end: int
    done: Done
    token: object


@dataclass(slots=True, eq=False)
class _Group:
    """What one producer puts into one queue in one turn."""

    epoch: int
    first: int
    entries: list[Entry]
    shares: list[_Share] = field(default_factory=list)

    def share(self, claimed: Numbers, done: Done, token: object) -> _Share:
        return _Share(claimed.first - self.first, claimed.end - self.first, done, token)


class SequencedPuts:
    """Stands before the message service; all of it belongs to the event loop's thread."""

    def __init__(self, messages: MessageService) -> None:
        self._messages = messages
        self._turn = -1
        self._gathered = Gathered()
        self._groups: dict[tuple[str, str, int], _Group] = {}
        self.expected: dict[tuple[str, QueueTail], list[int]] = {}
        """Epoch and next number of producers and queues, for those who take messages without `put`.
        """
        self.taken_in = -1
        """The turn in which somebody last did."""
        self.repeats = 0
        """Puts that were not appended because they were in the log."""
        self.refused = 0
        """Puts out of order or of a producer's past."""

    def put(
        self,
        entries: list[Entry],
        claimed: Numbers,
        level: Acknowledgement | None,
        done: Done,
        token: object,
    ) -> SequenceRefusal | None:
        """Put messages of one queue, or find where they are; `done` is called as for any put.

        A refusal is returned and nothing is called. `placed` holds NOWHERE for each message of a
        repeat that is further back than the window reaches.
        """
        self.expected.clear()
        if self.taken_in == self._messages.turn:
            self._messages.flush_turn()  # what was taken is known by the log alone
        self._begin_turn()
        tail = entries[0][ENTRY_TAIL]
        queue = (tail.topic.decode("utf-8", "replace"), tail.queue_id)
        logged = self._logged(claimed.producer, queue)
        state = self._gathered.state_of(queue, claimed.producer, logged)
        verdict = judge(state, claimed)
        if verdict is Verdict.APPEND:
            self._append(queue, entries, claimed, level, done, token)
        elif verdict is Verdict.REPEAT:
            self.repeats += 1
            self._repeat(queue, claimed, level, done, token)
        else:
            self.refused += 1
            return SequenceRefusal(verdict, state)
        return None

    @property
    def version(self) -> int:
        """Grows by one for each message of such producers in the log, and with other changes."""
        return self._messages.store.producers.version

    def expect(self, producer: str, tail: QueueTail) -> list[int]:
        """Return, and note, the epoch and the number with which a message may be taken without
        `put`, in an append of this turn that fails for all behind it in the queue, or for none.
        """
        self._begin_turn()
        queue = (tail.topic.decode("utf-8", "replace"), tail.queue_id)
        state = self._logged(producer, queue)
        if self._groups:
            state = self._gathered.state_of(queue, producer, state)
        self.expected[producer, tail] = expected = [state.epoch, state.next]
        return expected

    def _begin_turn(self) -> None:
        if self._turn != self._messages.turn:
            self._turn = self._messages.turn
            self._gathered, self._groups = Gathered(), {}

    def _logged(self, producer: str, queue: tuple[str, int]) -> ProducerState:
        known = self._messages.store.producers.state_in(producer, queue)
        return UNKNOWN if known is None else ProducerState(*known)

    def _append(
        self,
        queue: tuple[str, int],
        entries: list[Entry],
        claimed: Numbers,
        level: Acknowledgement | None,
        done: Done,
        token: object,
    ) -> None:
        self._gathered.add(queue, claimed)
        group = self._groups.get((claimed.producer, *queue))
        if group is None or group.epoch != claimed.epoch:
            group = _Group(claimed.epoch, claimed.first, entries)
            self._groups[claimed.producer, *queue] = group
            self._messages.put_sequenced(entries, level, _answer_all, group)
        else:
            group.entries.extend(entries)
        group.shares.append(group.share(claimed, done, token))

    def _repeat(
        self,
        queue: tuple[str, int],
        claimed: Numbers,
        level: Acknowledgement | None,
        done: Done,
        token: object,
    ) -> None:
        group = self._groups.get((claimed.producer, *queue))
        if group is not None and group.epoch == claimed.epoch and group.first <= claimed.first:
            group.shares.append(group.share(claimed, done, token))
            return
        store = self._messages.store
        offset = store.producers.offset_of(
            claimed.producer, queue, claimed.epoch, claimed.first, claimed.count
        )
        placed: Sequence[Placed] = ()
        if offset is not None:
            placed = store.placed(*queue, offset, claimed.count)
        self._messages.confirm(
            queue[0].encode(), placed or [NOWHERE] * claimed.count, level, done, token
        )


def _answer_all(group: _Group, status: PutStatus, placed: Sequence[Placed]) -> None:
    for at, end, done, token in group.shares:
        try:
            done(token, status, placed[at:end])
        except Exception:
            # Everybody else of the group gets an answer all the same.
            logger.exception("put_answer_failed status=%s", status.value)
