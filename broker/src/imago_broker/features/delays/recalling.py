"""Messages that their producer takes back before they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_broker.model import names
from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.needs import needs_to_send
from imago_broker.processors.rocketmq.outcomes import STORED
from imago_broker.service.delays.timers.timer_bucket import bucket_of, recall_tag
from imago_broker.service.puts.copies import TooManyCopiesError, named_copies
from imago_wire.errors import ProtocolError
from imago_wire.records.record import make_entry
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.send import RecallMessageRequestHeader
from imago_wire.remoting.texts.handles import RecallHandle, parse_recall_handle

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.identity import ThisBroker
    from imago_broker.service.delays.timers.timers import TimerService
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.puts.put_status import PutStatus
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.records.record import Placed

VISIBLE_MS_MAX = 5000
"""How long a recall waits until all members have what was sent before it."""


class _Recall(NamedTuple):
    exchange: Exchange
    handle: RecallHandle
    queue_id: int
    held: list[int]
    """Of the timers those that nobody had taken back before."""


class RecallProcessor:
    """RECALL_MESSAGE."""

    def __init__(
        self,
        *,
        messages: MessageService,
        topics: TopicService,
        timers: TimerService,
        this: ThisBroker,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store, self._messages, self._topics = messages.store, messages, topics
        self._timers, self._identity, self._settings = timers, this.identity, this.settings
        self._clock, self._loop = clock, loop

    def elsewhere(self, _: Exchange) -> Reply:
        """Answer for a member that does not lead."""
        return Reply(
            ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"
        )

    def recall(self, exchange: Exchange) -> Reply | None:
        """Note that the timer of a handle is not to fire; a handle of nothing is taken as well."""
        handle = self._checked_handle(exchange)
        if self._store.high_watermark < self._store.log_end:
            self._recall_later(exchange)
            return None
        return self._take_back(exchange, handle)

    def _recall_later(self, exchange: Exchange) -> None:
        """Look for the message once all that may have been acknowledged can be seen."""

        def too_late() -> None:
            exchange.answer(_failed())

        def visible() -> None:
            timer.cancel()
            if exchange.answered:
                return
            try:
                handle = self._checked_handle(exchange)
                exchange.require(lambda: needs_to_send(handle.topic))
                reply = self._take_back(exchange, handle)
            except RequestError as refusal:
                reply = refusal.reply
            if reply is not None:
                exchange.answer(reply)

        timer = self._loop.call_later(VISIBLE_MS_MAX / 1000, too_late)
        self._messages.when_visible(self._store.log_end, visible)

    def _take_back(self, exchange: Exchange, handle: RecallHandle) -> Reply | None:
        queue_id = bucket_of(handle.deliver_ms)
        offsets = self._parked(handle)
        if not offsets:
            return _done(handle)
        before = {each for each in offsets if self._timers.is_withdrawn(queue_id, each)}
        taken = [offset for offset in offsets if self._timers.withdraw(queue_id, offset)]
        held = [offset for offset in taken if offset not in before]
        if len(taken) < len(offsets):
            for offset in held:
                self._timers.give_back(queue_id, offset, handle.deliver_ms)
            raise _refused("recall failed, timestamp invalid")
        host = exchange.channel.born_host
        now_ms = self._clock.epoch_ms()
        unique = f"TIMER_DEL_UNIQKEY\x01{handle.topic}+{handle.message_id}\x02".encode()
        tail = self._store.tail(names.TIMER_TOPIC, queue_id)
        entries = [
            make_entry(
                tail, b"", unique, born_ms=now_ms, born_host=host, unit_tag=recall_tag(offset)
            )
            for offset in offsets
        ]
        level = self._topics.handles.level_of(handle.topic.encode())
        recall = _Recall(exchange, handle, queue_id, held)
        self._messages.put(entries, level, self._stored, recall)
        return None

    def _checked_handle(self, exchange: Exchange) -> RecallHandle:
        header = RecallMessageRequestHeader.from_ext(exchange.ext)
        settings = self._settings.current
        if not settings.recall_enabled:
            raise RequestError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._topics.get(header.topic) is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"recall failed, the topic[{names.shown(header.topic)}] not exist",
            )
        try:
            handle = parse_recall_handle(header.recall_handle)
        except ProtocolError as error:
            raise _refused(str(error)) from None
        if handle.topic != header.topic:
            raise _refused("recall failed, topic not match")
        if handle.broker_name != self._identity.broker_name:
            raise _refused("recall failed, broker service not available")
        left_ms = handle.deliver_ms - self._clock.epoch_ms()
        if not 0 < left_ms < settings.timer_delay_ms_max:
            raise _refused("recall failed, timestamp invalid")
        return handle

    def _parked(self, handle: RecallHandle) -> list[int]:
        """Return the offsets of the timers that a handle means.

        A message that its producer sent again is parked more than once: all are taken back.
        """
        end_ms = max(self._clock.epoch_ms(), self._store.newest_ms) + 1
        wanted = (handle.topic, str(handle.deliver_ms), handle.message_id)
        offsets = []
        try:
            for copy in named_copies(self._store, names.TIMER_TOPIC, handle.message_id, end_ms):
                named = [copy.text(key) for key in (b"REAL_TOPIC", b"TIMER_OUT_MS", b"UNIQ_KEY")]
                if tuple(named) == wanted:
                    offsets.append(copy.queue_offset)
        except TooManyCopiesError:
            raise _refused("recall failed, too many messages have this id") from None
        return offsets

    def _stored(self, recall: _Recall, status: PutStatus, _: Sequence[Placed]) -> None:
        if status in STORED:
            recall.exchange.answer(_done(recall.handle))
            return
        for offset in recall.held:
            self._timers.give_back(recall.queue_id, offset, recall.handle.deliver_ms)
        recall.exchange.answer(_failed())


def _done(handle: RecallHandle) -> Reply:
    return Reply(ext={"msgId": handle.message_id})


def _failed() -> Reply:
    return Reply(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")


def _refused(remark: str) -> RequestError:
    return RequestError(ResponseCode.ILLEGAL_OPERATION, remark)
