"""What producers, and the tools, say of transactions."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from imago_broker.core.transactions.transactions import Outcome, OutcomeVerdict
from imago_broker.model import names
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.needs import needs_to_send
from imago_broker.processors.rocketmq.send.end_transaction_path import ended_reply
from imago_broker.service.log_walk import record_from
from imago_broker.service.puts.copies import (
    TooManyCopiesError,
    named_records,
    read_copy,
    with_value,
)
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.transactions.transaction_log import group_of, immunity_ms, unique_of
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as props
from imago_wire.record_format.entries import ENTRY_PROPERTIES
from imago_wire.record_format.record_fields import read_layout
from imago_wire.records.record import PLACED_QUEUE_OFFSET, make_entry
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.send import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from imago_wire.remoting.texts.message_ids import parse_offset_message_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.ports import Clock
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.transactions.checks import TransactionChecks
    from imago_broker.service.transactions.service import TransactionService
    from imago_wire.hot import Half
    from imago_wire.records.record import Placed

logger = logging.getLogger(__name__)

UNDECIDED = 0
RESUMED_MAX = 10_000
"""Messages given up of which it is remembered that they were resumed; the log tells of others."""
_OUTCOMES = {8: Outcome.COMMITTED, 12: Outcome.ROLLED_BACK}
_BEGINS = Reply(ResponseCode.SYSTEM_BUSY, "this broker has just become the master: try again")
_ENDED_AS = {
    Outcome.COMMITTED: "was committed",
    Outcome.ROLLED_BACK: "was rolled back",
    Outcome.GIVEN_UP: "was given up after too many checks",
}


class TransactionProcessor:
    """END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE."""

    def __init__(
        self,
        transactions: TransactionService,
        checks: TransactionChecks,
        *,
        messages: MessageService,
        clock: Clock,
        settings: LiveSettings[RocketmqSection],
    ) -> None:
        self._transactions, self._checks = transactions, checks
        self._messages, self._clock, self._settings = messages, clock, settings
        self._resumed = OrderedDict[int, int]()
        """Those resumed last, by where they were given up: their half messages, -1 on its way."""
        transactions.on_stop.append(self._resumed.clear)

    def elsewhere(self, exchange: Exchange) -> Reply:
        """Answer where another member leads."""
        del exchange
        return Reply(
            ResponseCode.SLAVE_NOT_AVAILABLE,
            "Message store is slave mode, so end transaction is forbidden",
        )

    def end(self, exchange: Exchange) -> Reply | None:
        """END_TRANSACTION: write down how a transaction ends; the answer follows once it is safe.

        Who does not know yet is asked later.
        """
        header = EndTransactionRequestHeader.from_ext(exchange.ext)
        if header.commit_or_rollback == UNDECIDED:
            return OK
        outcome = _OUTCOMES.get(header.commit_or_rollback)
        if outcome is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"commitOrRollback {header.commit_or_rollback}: must be 8 (commit), 12 (rollback) "
                "or 0 (not known yet)",
            )
        if self._transactions.ready:
            return self._end(exchange, header, outcome)
        if not self._transactions.when_ready(lambda: self._later(exchange, header, outcome)):
            return _BEGINS
        return None

    def _later(
        self, exchange: Exchange, header: EndTransactionRequestHeader, outcome: Outcome
    ) -> None:
        if not self._transactions.ready:
            exchange.answer(self.elsewhere(exchange))
            return
        try:
            reply = self._end(exchange, header, outcome)
        except RequestError as refusal:
            reply = refusal.reply
        if reply is not None:
            exchange.answer(reply)

    def _end(
        self, exchange: Exchange, header: EndTransactionRequestHeader, outcome: Outcome
    ) -> Reply | None:
        offset = header.tran_state_table_offset
        half = self._transactions.halves.get(offset)
        usual = (
            half is not None
            and half.physical_offset == header.commit_log_offset
            and half.group == header.producer_group
            and half.unique == header.msg_id.encode()
        )
        if not usual:
            self._checks.recognise(offset, self._checked(header))
            half = self._transactions.halves.get(offset)
        exchange.require(lambda: needs_to_send(self._topic_of(header.commit_log_offset, half)))
        if half is not None and half.limited and not header.from_transaction_check:
            now_ms = self._clock.monotonic_ms()
            if now_ms > half.immune_until_ms:
                raise RequestError(
                    ResponseCode.ILLEGAL_OPERATION,
                    "the time that the message set for its producer's own decision is over: the "
                    "broker asks for it",
                )

        def ended(status: PutStatus | str) -> None:
            exchange.answer(ended_reply(status))

        verdict = self._transactions.end(offset, outcome, ended)
        if verdict is OutcomeVerdict.END:
            return None
        if verdict is OutcomeVerdict.REPEAT:
            self._confirm(exchange)
            return None
        raise _ended_otherwise(self._transactions.halves.outcome_of(offset))

    def _topic_of(self, offset: int, half: Half | None) -> str:
        """Return the topic that a half message is for, seen by readers or not; "": not known."""
        if half is not None and half.entry is not None:
            properties = half.entry[ENTRY_PROPERTIES]
        else:
            walked = record_from(self._messages.store, offset)
            properties = b"" if walked is None else read_copy(walked.data).properties
        return (props.find(properties, props.REAL_TOPIC.encode()) or b"").decode(errors="replace")

    def _confirm(self, exchange: Exchange) -> None:
        """Answer a repeat once all that is in the log is as safe as the first time."""

        def done(_: object, status: PutStatus, __: Sequence[Placed]) -> None:
            exchange.answer(ended_reply(status))

        self._messages.confirm(names.TRANSACTION_MARK_TOPIC.encode(), (), None, done, None)

    def _checked(self, header: EndTransactionRequestHeader) -> StoredCopy:
        """Return the half message that a producer speaks of, or refuse as RocketMQ does."""
        half = self._record(header.commit_log_offset)
        if half is None or half.topic != names.HALF_TOPIC:
            raise _wrong("Find prepared transaction message failed")
        if group_of(half) != header.producer_group:
            raise _wrong("The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise _wrong("The transaction state table offset wrong")
        if half.physical_offset != header.commit_log_offset:
            raise _wrong("The commit log offset wrong")
        unique = unique_of(half.properties)
        if header.msg_id not in ("", unique, half.offset_message_id):
            # Its own half message was lost with a member that alone had it; this is another's.
            raise _wrong(f"The message id wrong, this is {unique}")
        return half

    def _record(self, offset: int) -> StoredCopy | None:
        record = self._messages.store.record_at(offset) if offset >= 0 else None
        try:
            return None if record is None else read_copy(record)
        except ProtocolError:
            return None

    def resume(self, exchange: Exchange) -> Reply | None:
        """RESUME_CHECK_HALF_MESSAGE: have the producer asked again about a message given up.

        It becomes a half message again, which nobody was asked about yet: once, however often that
        is asked for. One that is open still begins to count again.
        """
        header = ResumeCheckHalfMessageRequestHeader.from_ext(exchange.ext)
        try:
            _, offset = parse_offset_message_id(header.msg_id or "")
        except ProtocolError as error:
            raise _wrong(str(error)) from None
        copy = self._record(offset)
        if copy is None or copy.topic not in (names.GIVEN_UP_TOPIC, names.HALF_TOPIC):
            raise _wrong(f"no message of a transaction has the id {header.msg_id}")
        if copy.topic == names.HALF_TOPIC:
            return self._count_again(copy.queue_offset)
        if not self._transactions.ready:
            return _BEGINS
        resumed = self._half_of(copy)
        if resumed is not None:
            return self._count_again(resumed)
        self._resume(exchange, copy)
        return None

    def _count_again(self, offset: int) -> Reply:
        if offset < 0:
            return Reply(ResponseCode.SYSTEM_BUSY, "this message is just being resumed")
        half = self._transactions.halves.get(offset)
        if half is None:
            raise _ended_otherwise(self._transactions.halves.outcome_of(offset))
        half.checks = 0
        self._transactions.checked()
        return OK

    def _half_of(self, given_up: StoredCopy) -> int | None:
        """Return where the half message is that a message given up has become before."""
        place = given_up.physical_offset
        known = self._resumed.get(place)
        if known is not None:
            return known
        store, unique = self._messages.store, unique_of(given_up.properties)
        end_ms = max(self._clock.epoch_ms(), store.newest_ms) + 1
        try:
            for record, _ in named_records(store, names.HALF_TOPIC, unique, end_ms):
                fields = read_layout(record, 0)
                if fields.prepared_offset == place:
                    return fields.queue_offset
        except TooManyCopiesError:  # one that was not looked at may be this one, decided since
            raise _wrong(f"too many half messages have the id {unique}") from None
        return None

    def _resume(self, exchange: Exchange, copy: StoredCopy) -> None:
        properties = with_value(copy.properties, props.TRANSACTION_CHECK_TIMES, "0")
        entry = make_entry(
            self._transactions.half_tail(),
            copy.body,
            properties,
            flag=copy.flag,
            sys_flag=copy.sys_flag,
            born_ms=copy.born_ms,
            born_host=copy.born_host,
            reconsume_times=copy.reconsume_times,
            prepared_offset=copy.physical_offset,
        )
        resumed, place = self._resumed, copy.physical_offset
        resumed[place] = -1
        while len(resumed) > RESUMED_MAX:
            resumed.popitem(last=False)

        def done(_: object, status: PutStatus, placed: Sequence[Placed]) -> None:
            if placed and status is not PutStatus.NOT_WRITABLE:
                resumed[place] = placed[0][PLACED_QUEUE_OFFSET]
            else:
                resumed.pop(place, None)
            exchange.answer(ended_reply(status))

        immunity = immunity_ms(properties, self._settings.current.transaction_timeout_ms)
        self._transactions.put_half(entry, group_of(copy), immunity, None, done, None)


def _wrong(remark: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)


def _ended_otherwise(outcome: Outcome | None) -> RequestError:
    how = "has ended, too long ago to know how" if outcome is None else _ENDED_AS[outcome]
    return _wrong(f"the transaction {how}: nothing more can be done about it")
