"""The fast path of END_TRANSACTION: outcomes straight from the bytes of a read.

It serves a producer that ends what this leader has seen it begin. Everything else is left to the
table: another outcome than before, the answer to a check, whatever was read from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.transactions.transactions import Outcome
from imago_broker.processors.rocketmq.exchange import Reply
from imago_broker.processors.rocketmq.outcomes import REFUSED, STORED
from imago_broker.processors.rocketmq.rows import not_here
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.serving_rules import Asks
from imago_wire.hot import answer_ends, take_ends
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.processors.rocketmq.sending_session import SendingSession
    from imago_broker.service.transactions.service import TransactionService
    from imago_broker.service.transactions.term import Term
    from imago_wire.hot import Half

_OUTCOMES = (Outcome.COMMITTED, Outcome.ROLLED_BACK)
_OK = PutStatus.OK  # bound once: an enumeration finds its members again each time


class EndPath:
    """Takes ends of transactions of all connections of the broker."""

    def __init__(self, transactions: TransactionService, lane: Lane, table: Table) -> None:
        """`table` serves what is left, in the same lane."""
        self._transactions, self._lane, self._table = transactions, lane, table
        self._term, self._turn = transactions.term, -1
        """When it was last made sure that ends are served here."""
        transactions.answer_by(self._answer)

    def take(
        self,
        session: SendingSession,
        data: bytes | bytearray | memoryview,
        at: int,
        frame_bytes_max: int,
    ) -> int:
        """Take the ends that stand at `at` of a read; return where that ended."""
        lane, term = self._lane, self._transactions.term
        if (term.turn != self._turn or term is not self._term) and not self._serves(term):
            return at
        limits, queue = (frame_bytes_max, lane.running_max - lane.running), term.queue
        before, opened = len(queue), term.halves.by_offset
        try:
            return take_ends(data, at, limits, opened, _OUTCOMES, session, queue, session.grants)
        finally:
            if len(queue) > before:
                lane.running += len(queue) - before
                if not term.scheduled:
                    self._transactions.write_soon()

    def _serves(self, term: Term) -> bool:
        """Whether ends may go this way; asked once a turn."""
        table = self._table
        if (table.hooks and table.watched) or not term.ready:
            return False
        rules = table.serving_rules
        if rules is not None and rules.refusal(Asks.CHANGE) is not None:
            return False
        self._term, self._turn = term, term.turn
        return True

    def _answer(self, halves: list[Half], status: PutStatus | str) -> None:
        """Answer those whose ends were taken, first when the log has them."""
        if status is _OK:
            for session, answers, count in answer_ends(halves):
                self._lane.running -= count
                if answers:
                    session.stored(answers)
            return
        for half in halves:
            session, half.asker = half.asker, None
            if session is not None:
                self._lane.running -= 1
                if not half.oneway:
                    form = SerializeType(half.form)
                    request = RemotingCommand(
                        code=0, opaque=half.opaque, serialize=form, flag=FLAG_RESPONSE
                    )
                    session.reply(request, ended_reply(status))


def ended_reply(status: PutStatus | str) -> Reply:
    """Return the answer that follows once an outcome is written down, or could not be."""
    if isinstance(status, str):
        return Reply(ResponseCode.SYSTEM_ERROR, status)
    if status is PutStatus.NOT_WRITABLE:
        return not_here("this broker is the master of the shard no more")
    return REFUSED[status] if status in REFUSED else Reply(STORED[status])
