"""The fast paths of a send, without a command object or a map of header fields.

Plain messages to queues that are in use are taken straight from the bytes of a read, and appended
and answered together with those of other connections; so are those that wait for a level or a time,
begin a transaction, or have the number that their producer comes to next. Batches, and the first
message of a queue, come as what the scanner found. Everything else is given back to go through the
table.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.processors.rocketmq.outcomes import REFUSED, STORED
from imago_broker.processors.rocketmq.send.end_transaction_path import EndPath
from imago_broker.processors.rocketmq.send.placing import PlacingTopics
from imago_broker.processors.rocketmq.send.send_parking import SendParking
from imago_broker.processors.rocketmq.send.send_round import SendRound
from imago_broker.processors.rocketmq.send.sending import broker_properties
from imago_broker.processors.rocketmq.send.sequenced_path import SequencedPath
from imago_broker.service.delays.timers.timer_properties import may_wait
from imago_broker.service.puts.put_jobs import SEQUENCED
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.errors import ProtocolError
from imago_wire.hot import (
    answer_sends,
    answer_stored,
    find_each,
    make_entries,
    make_entry,
    may_be_end,
    plain_send,
    scan_plain_batch,
    signer,
    take_sends,
)
from imago_wire.record_format.references import DISPATCH
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.messages import MESSAGES_MAX as BATCH_MESSAGES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.core.puts.sequencing import Numbers
    from imago_broker.processors.rocketmq.identity import ThisBroker
    from imago_broker.processors.rocketmq.lanes import Lanes
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.processors.rocketmq.send.sending import PutParts
    from imago_broker.processors.rocketmq.sending_session import SendingSession, Token
    from imago_broker.service.topics.topic_handles import TopicHandle
    from imago_broker.service.transactions.service import TransactionService
    from imago_wire.records.record import Placed
    from imago_wire.remoting.scanning.granting import UserGrants
    from imago_wire.remoting.scanning.items import SendItem
    from imago_wire.remoting.scanning.waiting import ParkingSpace

logger = logging.getLogger(__name__)
_OK = PutStatus.OK


def _names_light_queues(data: bytes | bytearray | memoryview) -> bool:
    """Whether a read may hold a message for light queues, which goes the slow path."""
    return DISPATCH in (data.tobytes() if isinstance(data, memoryview) else data)


class SendPath:
    """Takes the scanner's SEND items of all connections of the broker."""

    def __init__(
        self,
        *,
        puts: PutParts,
        transactions: TransactionService,
        this: ThisBroker,
        lanes: Lanes,
        table: Table,
    ) -> None:
        """`table` serves what goes the slow path, in the same lanes."""
        messages, handles, sequenced = puts.messages, puts.topics.handles, puts.sequenced
        settings = this.settings
        lane = self._lane = lanes.send
        self._ends = EndPath(transactions, lanes.transaction, table)
        """Serves what may stand among sends."""
        self._table = table
        self._handles = handles
        self._made = handles.by_name
        self._messages = messages
        self._put_one = messages.put_one
        self._put = messages.put
        self._light, self._placing = messages.light, PlacingTopics(puts.topics)
        self._live = settings
        self._store_host = messages.store.config.store_host
        self._added = broker_properties(this.identity.cluster, settings.current)
        self._puts, self._transactions = sequenced, transactions
        self._parking = SendParking(
            handles=handles,
            delay=puts.delay,
            transactions=transactions,
            sequenced=sequenced,
            settings=settings,
            broker_name=this.identity.broker_name,
        )
        self._sequenced = SequencedPath(
            sequenced, handles, lane, added=self._added, stored=self._stored
        )
        self._tails = handles.rocketmq_tails
        self._round = SendRound(Acknowledgement.LEADER)
        self._settings: RocketmqSection | None = None
        self._usual = False

    def take(
        self,
        session: SendingSession,
        data: bytes | bytearray | memoryview,
        frame_bytes_max: int,
        *,
        alone: bool = False,
    ) -> int:
        """Take the sends at the start of a read, as far as they need no closer look.

        Returns how many bytes they fill. Nearly all single messages come this way. Ends of
        transactions may stand behind them, unless `alone`.
        """
        settings, lane, round_ = self._live.current, self._lane, self._round
        usual = self._usual if settings is self._settings else self._take_settings(settings)
        light = self._light.enabled and _names_light_queues(data)
        if not usual or light or (self._placing.names and self._placing.concern(data)):
            return 0
        if round_.runs and round_.entries is not self._messages.newest:
            round_ = self._next_round(round_.level)
        parking, entries, level = self._parking, round_.entries, round_.level
        first = len(entries)
        limits = (frame_bytes_max, settings.message_bytes_max, lane.running_max - lane.running)
        tails, host, asked = self._tails[level], session.born_host, round_.asked
        parking.owner = session.transaction_owner
        try:
            used = take_sends(
                data, limits, tails, host, self._added, entries, asked, parking, session.grants
            )
        except Exception:
            # A fault of ours must not keep others' sends from being appended: these go through
            # the table, one by one.
            logger.warning("sends_not_taken peer=%s", session.peer, exc_info=True)
            del entries[first:], asked[first:]
            self._forget_special(first)
            return 0
        end = len(entries)
        if end > first:
            if not first:
                self._put(entries, level, self._answer_round, round_)
            lane.running += end - first
            round_.runs.append((session, first, end))
        space = parking.space
        if space is not None and (
            (space.halves and round_.halves is None)
            or (space.numbered and round_.numbered is None)
            or not end
        ):
            self._note_special(round_, space)
        if alone or not used or used == len(data) or not may_be_end(data, used):
            return used
        return self._take_ends(session, data, used, frame_bytes_max)

    def _take_ends(
        self,
        session: SendingSession,
        data: bytes | bytearray | memoryview,
        at: int,
        frame_bytes_max: int,
    ) -> int:
        """Take the ends of transactions at a place of a read, and more sends behind them."""
        end = self._ends.take(session, data, at, frame_bytes_max)
        if end in (at, len(data)):
            return end
        return self._take_more(session, data, end, frame_bytes_max)

    def _take_more(
        self,
        session: SendingSession,
        data: bytes | bytearray | memoryview,
        end: int,
        frame_bytes_max: int,
    ) -> int:
        """Take sends and ends in turn from behind an end on, as far as they reach."""
        with memoryview(data) as view:
            while True:
                with view[end:] as rest:
                    at = end + self.take(session, rest, frame_bytes_max, alone=True)
                if at in (end, len(view)):
                    return at
                end = self._ends.take(session, view, at, frame_bytes_max)
                if end in (at, len(view)):
                    return end

    def take_ends(
        self, session: SendingSession, data: bytes | bytearray, frame_bytes_max: int
    ) -> int:
        """Take ends of transactions at the start of a read, and sends behind them.

        Returns how many bytes they fill. It costs little where there are none.
        """
        if not may_be_end(data, 0):
            return 0
        end = self._ends.take(session, data, 0, frame_bytes_max)
        if not end or end == len(data):
            return end
        return self._take_more(session, data, end, frame_bytes_max)

    def _next_round(self, level: Acknowledgement) -> SendRound:
        """Begin a round; what producers have numbered in the one before is appended first."""
        if self._round.turn == self._messages.turn:
            self._messages.flush_turn()
        self._parking.space = None
        self._round = SendRound(level)
        return self._round

    def _note_special(self, round_: SendRound, space: ParkingSpace) -> None:
        """Note the half messages, and those of idempotent producers, that were taken."""
        if not round_.entries:
            self._parking.space = None  # the next turn's is another one
            return
        # Both lists go on for the whole round.
        if space.halves and round_.halves is None:
            timeout_ms = self._live.current.transaction_timeout_ms
            round_.halves = self._transactions.begin_halves((timeout_ms, False))
            round_.halves.note(space.halves)
        if space.numbered and round_.numbered is None:
            messages = self._messages
            round_.note_numbers(space.numbered, messages.turn)
            messages.kinds |= SEQUENCED
            self._puts.taken_in = messages.turn

    def _forget_special(self, first: int) -> None:
        """Undo what was noted of entries from `first` on."""
        space = self._parking.space
        self._parking.expected.clear()
        if space is not None:
            space.halves[:] = [half for half in space.halves if half[0] < first]
            space.numbered[:] = [taken for taken in space.numbered if taken[0] < first]

    def send(self, session: SendingSession, item: SendItem) -> None:
        """Take one send that `take` has left."""
        topic, queue_id, body = item.topic, item.queue_id, item.body
        handle = self._made.get(topic) or self._handles.of(topic)
        lane, grants = self._lane, session.grants
        if (
            handle is None
            or item.reconsume_times
            or not 0 <= queue_id < handle.partitions
            or lane.running >= lane.running_max
            or len(body) > self._live.current.message_bytes_max
            or topic not in self._tails[handle.level]
            or not self._usual
            or (self._light.enabled and item.properties.find(DISPATCH) >= 0)
            or (self._placing.names and self._placing.concern(item.properties))
        ):
            session.serve_send(item)
            return
        user = None if grants is None else signer(item.raw_header, body, grants)
        if grants is not None and (user is None or not user.publish[topic]):
            session.serve_send(item)
            return
        if item.batch and not item.sys_flag:
            self._send_batch(session, item, handle, user)
            return
        plain = None if item.sys_flag else plain_send(item.properties, self._added)
        if plain is None:
            self._look_closer(session, item, handle, user)
            return
        try:
            entry = make_entry(
                handle.tails[queue_id] or self._handles.tail(handle, queue_id),
                body,
                plain[1],
                flag=item.flag,
                born_ms=item.born_ms,
                born_host=session.born_host,
            )
        except ProtocolError:
            session.serve_send(item)
            return
        lane.running += 1
        self._prepare(handle, queue_id)
        self._put_one(
            entry,
            handle.level,
            self._unanswered if item.oneway else self._stored,
            (session, item.opaque, item.serialize, queue_id, plain[0]),
        )

    def _take_settings(self, settings: RocketmqSection) -> bool:
        """Return whether nothing about this broker asks for the slow path."""
        self._settings = settings
        # The answer's template knows RocketMQ's defaults only.
        is_default = settings.region == "DefaultRegion" and settings.trace_on
        self._usual = is_default and not self._table.watched
        return self._usual

    def _send_batch(
        self, session: SendingSession, item: SendItem, handle: TopicHandle, user: UserGrants | None
    ) -> None:
        queue_id = item.queue_id
        tail = handle.tails[queue_id] or self._handles.tail(handle, queue_id)
        try:
            messages = scan_plain_batch(item.body, BATCH_MESSAGES_MAX)
            entries = make_entries(tail, messages or (), item.born_ms, session.born_host)
        except ProtocolError:
            entries = []
        if not entries:
            self._look_closer(session, item, handle, user)
            return
        unique, transaction = find_each(item.properties, (b"UNIQ_KEY", b"TRAN_MSG"))
        if transaction is not None or may_wait(item.properties):
            session.serve_send(item)
            return
        self._lane.running += 1
        self._put(
            entries,
            handle.level,
            self._unanswered if item.oneway else self._stored,
            (session, item.opaque, item.serialize, queue_id, unique or b""),
        )

    def _look_closer(
        self, session: SendingSession, item: SendItem, handle: TopicHandle, user: UserGrants | None
    ) -> None:
        tag = "" if user is None else user.tag
        if not item.batch:
            self._prepare(handle, item.queue_id)
        if item.sys_flag or not self._sequenced.send(session, item, handle, tag):
            session.serve_send(item)

    def _prepare(self, handle: TopicHandle, queue_id: int) -> None:
        """Have the next send to this queue taken from its read."""
        if handle.tails[queue_id] is None:
            self._handles.tail(handle, queue_id)
        if handle.level is not self._round.level:
            self._next_round(handle.level)

    def _answer_round(self, round_: SendRound, status: PutStatus, placed: Sequence[Placed]) -> None:
        if round_.halves is not None:
            self._transactions.end_halves(round_.halves, round_.entries, placed, round_.asked)
        code = 0 if status is _OK else STORED.get(status)
        if code is None:
            self._refuse_round(round_, status)
            return
        asked, store_host = round_.asked, self._store_host
        self._lane.running -= len(asked)
        for session, first, end in round_.runs:
            answers = answer_sends(asked, placed, first, end, store_host, code)
            if answers:
                session.stored(answers)

    def _refuse_round(self, round_: SendRound, status: PutStatus) -> None:
        self._parking.expected.clear()  # it counted on these
        if status is PutStatus.TOO_LARGE and len(round_.entries) > 1:
            for alone in round_.one_by_one():  # only the one too large shall fail
                if alone.numbers is None:
                    self._put(alone.entries, alone.level, self._answer_round, alone)
                else:
                    self._put_numbered(alone, alone.numbers[0])
            return
        for session, first, end in round_.runs:
            for opaque, form, queue_id, unique, oneway, _ in round_.asked[first:end]:
                answer = self._unanswered if oneway else self._stored
                answer((session, opaque, form, queue_id, unique), status, ())

    def _put_numbered(self, alone: SendRound, claimed: Numbers) -> None:
        """Put a message so that none behind it in its queue is stored without it."""
        session, opaque, form, queue_id, unique, _, _ = (*alone.runs[0][:1], *alone.asked[0])
        self._sequenced.put(
            alone.entries, claimed, alone.level, (session, opaque, form, queue_id, unique)
        )

    def _stored(self, token: Token, status: PutStatus, placed: Sequence[Placed]) -> None:
        self._lane.running -= 1
        session, opaque, serialize, queue_id, unique = token
        code = 0 if status is _OK else STORED.get(status)
        if code is None:
            request = RemotingCommand(
                code=0, opaque=opaque, serialize=SerializeType(serialize), flag=FLAG_RESPONSE
            )
            session.reply(request, REFUSED[status])
            return
        session.push(
            answer_stored(opaque, self._store_host, placed, queue_id, unique, code, serialize)
        )

    def _unanswered(self, _: object, status: PutStatus, placed: Sequence[Placed]) -> None:
        del status, placed
        self._lane.running -= 1
