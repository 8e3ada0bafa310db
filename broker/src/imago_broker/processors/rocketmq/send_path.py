"""The short ways of a send, without a command object or a map of header fields.

Plain messages to queues that are in use are taken straight from the bytes of a read, and appended
and answered together with those of other connections. Batches, and the first message of a queue,
come as what the scanner found. Everything else is given back to go through the table.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.core.acknowledgement import Acknowledgement
from imago_broker.processors.rocketmq.outcomes import REFUSED, STORED
from imago_broker.processors.rocketmq.sequenced_path import SequencedPath
from imago_broker.processors.rounds import Round
from imago_broker.service.messages import PutStatus
from imago_wire.errors import ProtocolError
from imago_wire.hot import (
    answer_sends,
    answer_stored,
    find_each,
    make_entries,
    make_entry,
    plain_send,
    scan_plain_batch,
    take_sends,
)
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.messages import MESSAGES_MAX as BATCH_MESSAGES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections import RocketmqSection
    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.processors.rocketmq.sending_session import SendingSession, Token
    from imago_broker.service.messages import MessageService
    from imago_broker.service.sequencing import SequencedPuts
    from imago_broker.service.topic_handles import TopicHandle, TopicHandles
    from imago_wire.record import Placed
    from imago_wire.remoting.items import AskedSend, SendItem

logger = logging.getLogger(__name__)
_OK = PutStatus.OK


class SendPath:
    """Takes the scanner's SEND items of all connections of the broker."""

    def __init__(
        self,
        *,
        messages: MessageService,
        handles: TopicHandles,
        sequenced: SequencedPuts,
        identity: RocketmqIdentity,
        settings: LiveSettings[RocketmqSection],
        lane: Lane,
        table: Table,
    ) -> None:
        """`table` serves what goes the careful way, in the same lane."""
        self._lane = lane
        self._table = table
        self._handles = handles
        self._made = handles.by_name
        self._messages = messages
        self._put_one = messages.put_one
        self._put = messages.put
        self._live = settings
        self._store_host = messages.store.config.store_host
        self._cluster = b"CLUSTER\x01" + identity.cluster.encode() + b"\x02"
        self._sequenced = SequencedPath(
            sequenced, handles, lane, cluster=self._cluster, stored=self._stored
        )
        self._tails = handles.rocketmq_tails
        self._round: Round[SendingSession, AskedSend] = Round(Acknowledgement.LEADER)
        self._settings: RocketmqSection | None = None
        self._usual = False

    def take(self, session: SendingSession, data: bytes | bytearray, frame_bytes_max: int) -> int:
        """Take the sends at the start of a read, as far as they need no closer look.

        Returns how many bytes they fill. Nearly all single messages come this way.
        """
        settings, lane, round_ = self._live.current, self._lane, self._round
        if settings is not self._settings:
            self._take_settings(settings)
        if not self._usual:
            return 0
        if round_.runs and round_.entries is not self._messages.newest:
            round_ = self._round = Round(round_.level)
        entries, level = round_.entries, round_.level
        first = len(entries)
        limits = (frame_bytes_max, settings.message_bytes_max, lane.running_max - lane.running)
        tails, host, asked = self._tails[level], session.born_host, round_.asked
        try:
            used = take_sends(data, limits, tails, host, self._cluster, entries, asked)
        except Exception:
            # A fault of ours must not keep others' sends from being appended: these go through
            # the table, one by one.
            logger.warning("sends_not_taken peer=%s", session.peer, exc_info=True)
            del entries[first:], asked[first:]
            return 0
        end = len(entries)
        if end > first:
            if not first:
                self._put(entries, level, self._answer_round, round_)
            lane.running += end - first
            round_.runs.append((session, first, end))
        return used

    def send(self, session: SendingSession, item: SendItem) -> None:
        """Take one send that `take` has left."""
        topic, queue_id, body = item.topic, item.queue_id, item.body
        handle = self._made.get(topic) or self._handles.of(topic)
        lane = self._lane
        if (
            handle is None
            or item.sys_flag
            or item.reconsume_times
            or not 0 <= queue_id < handle.partitions
            or lane.running >= lane.running_max
            or len(body) > self._live.current.message_bytes_max
            or topic not in self._tails[handle.level]
            or not self._usual
        ):
            session.serve_send(item)
            return
        if item.batch:
            self._send_batch(session, item, handle)
            return
        plain = plain_send(item.properties, self._cluster)
        if plain is None:
            self._look_closer(session, item, handle)
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
        if handle.level is not self._round.level:
            self._round = Round(handle.level)  # of the next round
        self._put_one(
            entry,
            handle.level,
            self._unanswered if item.oneway else self._stored,
            (session, item.opaque, item.serialize, queue_id, plain[0]),
        )

    def _take_settings(self, settings: RocketmqSection) -> None:
        """See whether anything about this broker asks for the careful way."""
        self._settings = settings
        # The answer's template knows RocketMQ's defaults only.
        is_default = settings.region == "DefaultRegion" and settings.trace_on
        self._usual = is_default and not self._table.hooks

    def _send_batch(self, session: SendingSession, item: SendItem, handle: TopicHandle) -> None:
        queue_id = item.queue_id
        tail = handle.tails[queue_id] or self._handles.tail(handle, queue_id)
        try:
            messages = scan_plain_batch(item.body, BATCH_MESSAGES_MAX)
            entries = make_entries(tail, messages or (), item.born_ms, session.born_host)
        except ProtocolError:
            entries = []
        if not entries:
            self._look_closer(session, item, handle)
            return
        unique, transaction = find_each(item.properties, (b"UNIQ_KEY", b"TRAN_MSG"))
        if transaction is not None:
            session.serve_send(item)
            return
        self._lane.running += 1
        self._put(
            entries,
            handle.level,
            self._unanswered if item.oneway else self._stored,
            (session, item.opaque, item.serialize, queue_id, unique or b""),
        )

    def _look_closer(self, session: SendingSession, item: SendItem, handle: TopicHandle) -> None:
        if not self._sequenced.send(session, item, handle):
            session.serve_send(item)

    def _answer_round(
        self, round_: Round[SendingSession, AskedSend], status: PutStatus, placed: Sequence[Placed]
    ) -> None:
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

    def _refuse_round(self, round_: Round[SendingSession, AskedSend], status: PutStatus) -> None:
        if status is PutStatus.TOO_LARGE and len(round_.entries) > 1:
            for alone in round_.one_by_one():  # only the one too large shall fail
                self._put(alone.entries, alone.level, self._answer_round, alone)
            return
        for session, first, end in round_.runs:
            for opaque, form, queue_id, unique, oneway in round_.asked[first:end]:
                answer = self._unanswered if oneway else self._stored
                answer((session, opaque, form, queue_id, unique), status, ())

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
