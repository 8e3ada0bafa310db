"""POP_MESSAGE: messages for a while, from queues that the broker chooses.

A POP that finds nothing waits, as a pull does, for an arrival or for messages that come back, and
is answered 210 when its time is up. Its answer leaves once all in-sync members know what is out.
Messages that come back are read where they are, with the count of their deliveries: there is no
retry topic of POP, and receipts name the topic itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from imago_broker.features.pop.giving import give
from imago_broker.features.pop.priorities import goes_by_priority
from imago_broker.features.pop.reading import ATTEMPT_SIZE, PopAsk
from imago_broker.features.pop.waiting import ANY_QUEUE
from imago_broker.model.topics.topics import PERM_READ
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.pull.pull_request import BYTES_MAX
from imago_broker.processors.rocketmq.rows import not_here
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.core.budget import OutputBudget
    from imago_broker.features.pop.giving import PopParts
    from imago_broker.features.pop.reading import PopTake
    from imago_broker.features.pop.service import Queue
    from imago_broker.features.pop.waiting import Waiting
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.processors.rocketmq.pull.subscriptions import MessageSelector
    from imago_broker.processors.rocketmq.rules import GroupRules
    from imago_broker.service.groups.resets import PendingResets

MESSAGES_MAX = 32
LATE_MS = 500
POLL_MS_MAX = 600_000
INVISIBLE_MS_MAX = 7 * 24 * 3600 * 1000
FROM_END = 1
IN_ORDER_QUEUE, REVIVE_QUEUE = 999, 0
"""What RocketMQ's receipts name as the queue of their check point: here there is none."""
NOT_SETTLED = "this broker has just become the master and does not know yet what is out"


class PopProcessor:
    """POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION and POLLING_INFO."""

    def __init__(
        self,
        parts: PopParts,
        *,
        group_rules: GroupRules,
        selector: MessageSelector,
        resets: PendingResets,
        budget: OutputBudget,
        identity: RocketmqIdentity,
    ) -> None:
        self._parts = parts
        self._group_rules = group_rules
        self._selector = selector
        self._resets = resets
        self._budget = budget
        self._host = identity.host
        self.turns = 0
        """By what moves which of a topic's queues is read first."""

    def pop(self, exchange: Exchange) -> Reply | None:
        """POP_MESSAGE."""
        header = PopMessageRequestHeader.from_ext(exchange.ext)
        until_ms = self.until(header.born_time, header.poll_time)
        if header.max_msg_nums > MESSAGES_MAX:
            raise rules.invalid(
                f"the broker[{self._host}] pop message's num is greater than {MESSAGES_MAX}"
            )
        self._require_count(header.max_msg_nums)
        if not 0 <= header.invisible_time <= INVISIBLE_MS_MAX:
            raise rules.invalid(f"invisibleTime[{header.invisible_time}] is illegal")
        ask = self.ask(
            (header.consumer_group, header.topic, header.queue_id),
            (header.exp_type, header.exp),
            exchange.channel.peer,
            messages_max=header.max_msg_nums,
            invisible_ms=header.invisible_time,
            from_end=header.init_mode == FROM_END,
            in_order=header.order,
            attempt=(header.attempt_id or "")[:ATTEMPT_SIZE],
        )
        return Pop(self._parts, exchange, ask, header.queue_id, until_ms).begin()

    def ask(
        self,
        place: Queue,
        expression: tuple[str | None, str | None],
        peer: str,
        *,
        in_order: bool,
        **more: Any,
    ) -> PopAsk:
        """Return what a POP of these messages asks for; refuse one that may not be."""
        group, topic, queue_id = place
        self.allow_group(group, topic)
        queue_ids = self._queue_ids(peer, topic, queue_id, "" if in_order else group)
        chosen = self._selector.select_expression(*expression)
        self.forget_resets(group, topic, queue_ids)
        return PopAsk(
            group=group,
            topic=topic,
            queue_ids=queue_ids,
            bytes_max=self.allowance(),
            in_order=in_order,
            tags=chosen.tags,
            wanted=chosen.wanted,
            **more,
        )

    def forget_resets(self, group: str, topic: str, queue_ids: Sequence[int]) -> None:
        """Have a reset count from when it was made: pulls that follow go on from what is popped."""
        if self._resets:
            self._resets.forget((group, topic, each) for each in queue_ids)

    def peek(self, exchange: Exchange) -> Reply:
        """PEEK_MESSAGE: what a POP would give now, and nothing is taken."""
        header = PeekMessageRequestHeader.from_ext(exchange.ext)
        self._require_count(header.max_msg_nums)
        self.allow_group(header.consumer_group, header.topic)
        ask = PopAsk(
            group=header.consumer_group,
            topic=header.topic,
            queue_ids=self._queue_ids(exchange.channel.peer, header.topic, header.queue_id),
            messages_max=min(header.max_msg_nums, MESSAGES_MAX),
            bytes_max=self.allowance(),
            invisible_ms=0,
        )
        if not self._parts.pops.ready:
            return not_here(NOT_SETTLED)
        take = self._parts.reader.peek(ask, self._parts.clock.epoch_ms())
        ext = _header(take, ask).to_ext()
        body = b"".join(record for look in take.queues for record in look.records)
        if not body:
            return Reply(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", ext)
        return Reply(ResponseCode.SUCCESS, "FOUND", ext, body)

    def notify(self, exchange: Exchange) -> Reply | None:
        """NOTIFICATION: whether there is something to pop, now or while it waits."""
        header = NotificationRequestHeader.from_ext(exchange.ext)
        until_ms = self.until(header.born_time, header.poll_time)
        self.allow_group(header.consumer_group, header.topic)
        ask = PopAsk(
            group=header.consumer_group,
            topic=header.topic,
            queue_ids=self._queue_ids(exchange.channel.peer, header.topic, header.queue_id),
            messages_max=1,
            bytes_max=1,
            invisible_ms=0,
            in_order=header.order,
        )
        return _Notification(self._parts, exchange, ask, header.queue_id, until_ms).begin()

    def polling_info(self, exchange: Exchange) -> Reply:
        """POLLING_INFO: how many requests wait."""
        header = PollingInfoRequestHeader.from_ext(exchange.ext)
        self.allow_group(header.consumer_group, header.topic)
        self._queue_ids(exchange.channel.peer, header.topic, header.queue_id)
        count = self._parts.waiting.count(header.consumer_group, header.topic, header.queue_id)
        return Reply(ext=PollingInfoResponseHeader(polling_num=count).to_ext())

    def _require_count(self, count: int) -> None:
        if count < 0:
            raise rules.invalid(f"the broker[{self._host}] pop message's num is {count}")

    def until(self, born_ms: int, poll_ms: int) -> int:
        """Return until when a request may wait; refuse one that is too late already."""
        now_ms = self._parts.clock.epoch_ms()
        until_ms = (born_ms or now_ms) + max(0, min(poll_ms, POLL_MS_MAX))
        if until_ms + LATE_MS < now_ms:
            raise RequestError(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self._host}] pop message is timeout too much",
            )
        return min(until_ms, now_ms + POLL_MS_MAX)

    def allow_group(self, name: str, topic: str) -> None:
        """Refuse a group that may not consume this topic."""
        rules.may_read(rules.may_consume(name, self._group_rules.require(name)), topic)

    def _queue_ids(self, peer: str, topic: str, queue_id: int, group: str = "") -> list[int]:
        """Return the queues to read, each time another one first. `group`: priorities count to."""
        config = rules.topic_of(self._parts.topics, topic)
        if not config.perm & PERM_READ:
            raise rules.forbidden(f"the topic[{topic}] peeking message is forbidden")
        if queue_id >= config.read_queues or queue_id < ANY_QUEUE:
            raise rules.illegal_queue(config, queue_id, peer)
        if queue_id != ANY_QUEUE:
            return [queue_id]
        self.turns += 1
        if group and goes_by_priority(config, self._parts.groups.get(group), self.turns):
            return [*reversed(range(config.read_queues))]
        first = self.turns % max(1, config.read_queues)
        return [*range(first, config.read_queues), *range(first)]

    def allowance(self) -> int:
        """Return how many bytes an answer may have by now."""
        allowed = self._budget.allowance(BYTES_MAX)
        if not allowed:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, "too many answers wait for clients that do not read"
            )
        return allowed


class Waiter(ABC):
    """A request that looks, waits and looks again until it has an answer."""

    def __init__(
        self, parts: PopParts, exchange: Exchange, ask: PopAsk, queue_id: int, until_ms: int
    ) -> None:
        self._parts, self._exchange, self._ask = parts, exchange, ask
        self._queue_id, self._until_ms = queue_id, until_ms
        self._place = ask.topic.encode()
        """The name under which it waits."""
        self._waiting: Waiting | None = None

    def begin(self) -> Reply | None:
        """Answer, or wait."""
        if not self._parts.pops.ready:
            return not_here(NOT_SETTLED)
        if self._look(self._exchange.answer):
            return None
        hold_ms = self._until_ms - self._parts.clock.epoch_ms()
        if hold_ms <= 0:
            return self._nothing()
        self._waiting = self._parts.waiting.hold(
            self._place,
            self._queue_id,
            group=self._ask.group,
            in_order=self._ask.in_order,
            hold_ms=hold_ms,
            wake=self._wake,
        )
        if self._waiting is None:
            return self._full()
        self._exchange.channel.watch(self._gone)
        self._note_due()
        return None

    def _wake(self, late: bool) -> bool:
        waiting = self._parts.waiting
        if not self._parts.pops.ready:
            return self._end(not_here(NOT_SETTLED))
        if (refusal := self._refusal()) is not None:
            return self._end(refusal)
        if not waiting.releasing and self._look(self._end):
            self._leave()
            return True
        if late:
            return self._end(self._nothing())
        self._note_due()
        return False

    def _refusal(self) -> Reply | None:
        """Return why the request is void by now: its group or topic may be gone or closed.

        Who waits for any queue of a topic that has others by now is to ask again.
        """
        try:
            group = rules.may_consume(self._ask.group, self._parts.groups.get(self._ask.group))
            rules.may_read(group, self._ask.topic)
            config = rules.readable_topic(self._parts.topics, self._ask.topic)
        except RequestError as refusal:
            return refusal.reply
        if self._queue_id == ANY_QUEUE:
            same = len(self._ask.queue_ids) == config.read_queues
            return None if same else self._nothing()
        if self._queue_id < config.read_queues:
            return None
        return rules.illegal_queue(config, self._queue_id, self._exchange.channel.peer).reply

    def _note_due(self) -> None:
        """Come back when messages that are out do."""
        for queue_id in self._ask.queue_ids:
            popped = self._parts.pops.known((self._ask.group, self._ask.topic, queue_id))
            due_ms = None if popped is None else popped.state.due_ms
            if due_ms is not None:
                self._parts.waiting.out_until(self._ask.topic, queue_id, due_ms)

    def _leave(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._exchange.channel.unwatch(self._gone)
            self._parts.waiting.left(waiting)

    def _end(self, reply: Reply) -> bool:
        self._leave()
        self._exchange.answer(reply)
        return True

    def _gone(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._parts.waiting.left(waiting)
        self._exchange.finish()

    @abstractmethod
    def _look(self, answer: Callable[[Reply], object]) -> bool:
        """Look; true: `answer` was called, or will be."""

    @abstractmethod
    def _nothing(self) -> Reply:
        """Return the answer when the time is up."""

    @abstractmethod
    def _full(self) -> Reply:
        """Return the answer when too many wait."""


class Pop(Waiter):
    """One POP_MESSAGE."""

    _take: PopTake

    def _look(self, answer: Callable[[Reply], object]) -> bool:
        parts, ask = self._parts, self._ask
        now_ms = parts.clock.epoch_ms()
        began_ns = perf_counter_ns()
        take = self._take = self._taken(now_ms)
        parts.traffic.note_read(perf_counter_ns() - began_ns)
        if not take.queues:
            parts.traffic.missed += 1
            if take.more:
                answer(self._nothing())
            return take.more
        exchange = self._exchange

        def given(status: PutStatus, body: bytes) -> None:
            if status is not PutStatus.OK:
                exchange.answer(unwritten(status))
                return
            ext = _header(take, ask).to_ext()
            exchange.answer(Reply(ResponseCode.SUCCESS, "FOUND", ext, body))

        give(parts, ask, take, now_ms, given)
        return True

    def _taken(self, now_ms: int) -> PopTake:
        reader = self._parts.reader
        return reader.take(self._ask, now_ms)._replace(rest=reader.rest(self._ask))

    def _nothing(self) -> Reply:
        ext = _header(self._take, self._ask).to_ext()
        return Reply(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", ext)

    def _full(self) -> Reply:
        return Reply(
            ResponseCode.POLLING_FULL, "POLLING_FULL", _header(self._take, self._ask).to_ext()
        )


def _header(take: PopTake, ask: PopAsk) -> PopMessageResponseHeader:
    return PopMessageResponseHeader(
        pop_time=take.stamp,
        invisible_time=ask.invisible_ms,
        revive_qid=IN_ORDER_QUEUE if ask.in_order else REVIVE_QUEUE,
        rest_num=take.rest,
        start_offset_info=";".join(
            f"0 {look.queue_id} {next(iter(look.times))}" for look in take.queues
        ),
        msg_offset_info=";".join(
            f"0 {look.queue_id} {','.join(map(str, look.times))}" for look in take.queues
        ),
    )


class _Notification(Waiter):
    """One NOTIFICATION."""

    def _look(self, answer: Callable[[Reply], object]) -> bool:
        if not self._parts.reader.waits(self._ask, self._parts.clock.epoch_ms()):
            return False
        answer(_notified(has_msg=True))
        return True

    def _nothing(self) -> Reply:
        return _notified()

    def _full(self) -> Reply:
        return _notified(polling_full=True)


def _notified(*, has_msg: bool = False, polling_full: bool = False) -> Reply:
    header = NotificationResponseHeader(has_msg=has_msg, polling_full=polling_full)
    return Reply(ext=header.to_ext())


def unwritten(status: PutStatus) -> Reply:
    """Return the answer to a request whose change is not safe."""
    if status is PutStatus.DISK_FULL:
        return Reply(ResponseCode.SYSTEM_BUSY, "what is out cannot be written: the disk is full")
    return not_here("the other members of the shard did not confirm it")
