"""The short way of END_TRANSACTION: outcomes straight from the bytes of a read.

It serves a producer that ends what this leader has seen it begin. Everything else is left to the
table: another outcome than before, the answer to a check, whatever was read from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.transactions import Outcome
from imago_broker.processors.rocketmq.transactions import ended_reply
from imago_broker.service.messages import PutStatus
from imago_broker.service.serving_rules import Asks
from imago_broker.service.transactions.term import Ending
from imago_wire.hot import answer_done, signer, take_ends
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.frame import HEADER_BYTES_MAX, check_header_size

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.processors.rocketmq.sending_session import SendingSession
    from imago_broker.service.transactions.service import TransactionService
    from imago_wire.remoting.granting import Grants
    from imago_wire.remoting.items import AskedEnd

_OUTCOMES = {8: Outcome.COMMITTED, 12: Outcome.ROLLED_BACK}
# Bound once: an enumeration finds its members anew each time that they are named.
_OK, _CHANGE = PutStatus.OK, Asks.CHANGE


class EndPath:
    """Takes ends of transactions of all connections of the broker."""

    def __init__(self, transactions: TransactionService, lane: Lane, table: Table) -> None:
        """`table` serves what is left, in the same lane."""
        self._transactions, self._lane, self._table = transactions, lane, table

    def take(
        self,
        session: SendingSession,
        data: bytes | bytearray | memoryview,
        at: int,
        frame_bytes_max: int,
    ) -> int:
        """Take the ends that stand at `at` of a read; return where that ended."""
        ends: list[AskedEnd] = []
        lane = self._lane
        take_ends(data, at, frame_bytes_max, lane.running_max - lane.running, ends)
        if not ends or not self._serves():
            return at
        end_usual = self._transactions.end_usual
        grants = session.grants
        for opaque, form, oneway, group, offset, place, outcome, unique, topic, frame_end in ends:
            if grants is not None:
                topics = (self._transactions.topic_of(offset, place), topic)
                if not _may_end(data[at:frame_end], topics, grants):
                    break
            ending = _Reported(offset, _OUTCOMES[outcome], lane, session, (opaque, form, oneway))
            if not end_usual(ending, place, group, unique):
                break
            lane.running += 1
            at = frame_end
        return at

    def _serves(self) -> bool:
        table = self._table
        if (table.hooks and table.watched) or not self._transactions.ready:
            return False
        rules = table.serving_rules
        return rules is None or rules.refusal(_CHANGE) is None


class _Reported(Ending):
    """An outcome that its producer has reported: it is answered first when the log has it."""

    __slots__ = ("_asked", "_lane", "_session")

    def __init__(
        self,
        offset: int,
        outcome: Outcome,
        lane: Lane,
        session: SendingSession,
        asked: tuple[int, int, bool],
    ) -> None:
        """`asked`: opaque, form of the header, and whether it is one-way."""
        self.offset, self.outcome, self.waiting, self.tries = offset, outcome, [], 0
        self._lane, self._session, self._asked = lane, session, asked

    def tell(self, status: PutStatus | str) -> None:
        self._lane.running -= 1
        opaque, form, oneway = self._asked
        if status is _OK and not oneway:
            self._session.push(answer_done(opaque, form))
        elif not oneway:
            request = RemotingCommand(
                code=0, opaque=opaque, serialize=SerializeType(form), flag=FLAG_RESPONSE
            )
            self._session.reply(request, ended_reply(status))
        if self.waiting:
            super().tell(status)


def _may_end(
    frame: bytes | bytearray | memoryview, topics: tuple[str, str], grants: Grants
) -> bool:
    """Whether the user of a frame may send to the half message's topic, and to the one it names."""
    header_end = check_header_size(frame, 0, HEADER_BYTES_MAX)
    user = signer(bytes(frame[4:header_end]), bytes(frame[header_end:]), grants)
    own, named = topics
    if user is None or not own:
        return False
    return user.publish[own] and (named in {"", own} or user.publish[named])
