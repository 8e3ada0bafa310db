"""Pulls: reading a queue, at once or as soon as something arrives.

A pull that finds nothing and may wait is held until an append brings a message that it wants, its
time is up, or its connection closes. While it is held, messages that its tags or its filter do not
match are passed over once and never read again.

A member of the shard that does not serve pulls sends the consumer to the master: clients follow the
broker id of an answer, not an error. One that serves them as a slave does so up to where all
in-sync members are; where it has nothing, the consumer goes to the master too.

RocketMQ limits one answer to 256 KiB. A client that sends the header field `imagoBatch=true` gets
up to `maxMsgNums` ≤ 10,000 messages and `maxMsgBytes` ≤ 4 MiB (without that field: 4 MiB).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.pull.pull_outcome import (
    COMING,
    NOTHING,
    OFFSET_MOVED,
    REDIRECTED,
    RESET,
    PullOutcome,
)
from imago_broker.processors.rocketmq.pull.pull_request import (
    FLAG_SUSPEND,
    PullRequest,
)
from imago_broker.processors.rocketmq.pull.subscriptions import Selection
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.bodies.route import MASTER_ID
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.core.budget import OutputBudget
    from imago_broker.processors.rocketmq.pull.directions import Directions
    from imago_broker.processors.rocketmq.pull.subscriptions import MessageSelector
    from imago_broker.processors.rocketmq.rules import GroupRules
    from imago_broker.service.figures.traffic import Traffic
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.groups.pull_hold import Held, PullHold, Wake
    from imago_broker.service.groups.resets import PendingResets
    from imago_broker.service.role import ShardRole
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics.topics import TopicService
    from imago_log.results import ReadResult
    from imago_log.store import MessageStore
    from imago_wire.remoting.scanning.items import AskedPull

logger = logging.getLogger(__name__)

REDIRECT_MS = 50
"""How long a pull that is sent elsewhere waits: its client asks again at once."""


HELD_WEIGHT_MAX = 50_000
"""Of all that held pulls want: some 100 MB, and half a second when each of them has to look."""
COMING_MS = 10_000
"""How long a pull waits for old messages that are being fetched, whether or not it would wait for
new ones."""
HEAVY_MS = 1000
"""How long a pull waits for its answer that would be too much to hold."""


@dataclass(slots=True)
class HeldWeight:
    """What the pulls that are held want, all together."""

    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PullReading:
    """What a pull needs from its first look to its answer, which may be much later."""

    store: MessageStore
    topics: TopicService
    hold: PullHold
    resets: PendingResets
    serving_rules: ServingRules
    directions: Directions
    traffic: Traffic
    settings: LiveSettings[RocketmqSection]


class PullProcessor:
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(
        self,
        reading: PullReading,
        *,
        group_rules: GroupRules,
        selector: MessageSelector,
        offsets: ConsumerOffsets,
        budget: OutputBudget,
    ) -> None:
        self.reading = reading
        self._hold = reading.hold
        self._serving_rules = reading.serving_rules
        self._group_rules = group_rules
        self.selector = selector
        self.offsets = offsets
        self.budget = budget
        self._weight = HeldWeight()
        reading.serving_rules.role.on_change.append(self._role_changed)

    def pull(self, exchange: Exchange) -> Reply | None:
        """Answer with messages, hold the request, or say why neither."""
        request = PullRequest(exchange.ext)
        self._check(exchange, request)
        self._allow(request)
        chosen = self.selector.select(request)
        pull = _Pull(self.reading, exchange, request, chosen, self._weight)
        outcome = pull.look()
        reset = outcome.result is RESET
        if request.commits and not reset and self._serving_rules.leads:
            self.offsets.commit(
                request.group, request.topic, request.queue_id, request.commit_offset
            )
        if outcome.result is NOTHING and request.sys_flag & FLAG_SUSPEND:
            if chosen.weight and self._weight.total + chosen.weight > HELD_WEIGHT_MAX:
                return self._soon(exchange, request, outcome.reply(), HEAVY_MS)
            return None if pull.wait() else outcome.reply()
        if outcome.result is COMING:
            return None if pull.wait(COMING_MS) else outcome.reply()
        if outcome.result is REDIRECTED:
            return self._soon(exchange, request, outcome.reply())
        return outcome.reply()

    def take_over(
        self, exchange: Exchange, asked: AskedPull, tags: frozenset[int] | None, held: Held
    ) -> Wake:
        """Go on with a pull that the fast path holds; return what wakes it from now on."""
        request = PullRequest.of(asked)
        request.bytes_max = max(1, self.budget.allowance(request.bytes_max))
        pull = _Pull(self.reading, exchange, request, Selection(tags), self._weight)
        return pull.go_on(held)

    def redirect(self, exchange: Exchange) -> Reply | None:
        """Send the consumer to the master: here no pulls are served now."""
        request = PullRequest(exchange.ext)
        outcome = PullOutcome.redirected(request.queue_offset, self.reading.directions.to_master())
        return self._soon(exchange, request, outcome.reply())

    def _soon(
        self, exchange: Exchange, request: PullRequest, reply: Reply, hold_ms: int = REDIRECT_MS
    ) -> Reply | None:
        """Give the answer after a moment where the client lets a pull wait."""
        if not request.sys_flag & FLAG_SUSPEND:
            return reply
        channel, hold = exchange.channel, self._hold

        def wake(late: bool) -> bool:
            if late:
                channel.unwatch(gone)
                exchange.answer(reply)
            return late

        held = hold.hold(request.topic.encode(), request.queue_id, hold_ms=hold_ms, wake=wake)
        if held is None:
            return reply

        def gone() -> None:
            hold.forget(held)
            exchange.finish()

        channel.watch(gone)
        return None

    def _role_changed(self, role: ShardRole) -> None:
        if not role.leads:
            self._hold.release_all()

    def _allow(self, request: PullRequest) -> None:
        """Take what the memory for unread answers allows; refuse where there is none."""
        allowed = self.budget.allowance(request.bytes_max)
        if not allowed:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, "too many answers wait for clients that do not read"
            )
        request.bytes_max = allowed

    def _check(self, exchange: Exchange, request: PullRequest) -> None:
        group = rules.may_consume(request.group, self._group_rules.require(request.group))
        topic = rules.readable_topic(self.reading.topics, request.topic)
        rules.may_read(group, request.topic)
        if not 0 <= request.queue_id < topic.read_queues:
            raise rules.illegal_queue(topic, request.queue_id, exchange.channel.peer)


class _Pull:
    """One pull from its first look to its answer."""

    __slots__ = (
        "_chosen",
        "_exchange",
        "_held",
        "_offset",
        "_reading",
        "_request",
        "_weight",
    )

    def __init__(
        self,
        reading: PullReading,
        exchange: Exchange,
        request: PullRequest,
        chosen: Selection,
        weight: HeldWeight,
    ) -> None:
        """`weight` is that of all held pulls; this one's counts while it is held."""
        self._reading = reading
        self._weight = weight
        self._exchange = exchange
        self._request = request
        self._chosen = chosen
        self._offset = request.queue_offset
        self._held: Held | None = None

    def look(self) -> PullOutcome:
        """Read from where the pull stands, or say where it was moved to."""
        request = self._request
        moved = self._reading.resets.take(
            request.group, request.topic, request.queue_id, self._offset
        )
        return self._outcome(self._read()) if moved is None else self._reset(moved)

    def wait(self, hold_ms: int = 0) -> bool:
        """Hold the request, for so long at least; False when it has to be answered now."""
        hold_ms_max = self._reading.settings.current.pull_hold_ms_max
        hold_ms = max(hold_ms, min(self._request.suspend_ms, hold_ms_max))
        if hold_ms <= 0:
            return False
        self._held = self._reading.hold.hold(
            self._request.topic.encode(), self._request.queue_id, hold_ms=hold_ms, wake=self._wake
        )
        if self._held is None:
            return False
        self.go_on(self._held)
        self._exchange.keep_little()
        return True

    def go_on(self, held: Held) -> Wake:
        """Take the place of whoever was held until now; return what wakes this one."""
        self._held = held
        self._weight.total += self._chosen.weight
        self._exchange.channel.watch(self._gone)
        return self._wake

    def _wake(self, late: bool) -> bool:
        outcome = self._look_again()
        if not late and outcome.may_wait:
            # Nothing that is wanted: go on waiting, behind what was passed over.
            self._offset = outcome.next_offset
            return False
        self._exchange.channel.unwatch(self._gone)
        self._weight.total -= self._chosen.weight
        self._exchange.answer(outcome.reply())
        return True

    def _look_again(self) -> PullOutcome:
        # The topic may have been deleted or closed since the request came, or the master changed.
        if self._reading.serving_rules.refusal(Asks.MESSAGES) is not None:
            return PullOutcome.redirected(self._offset, self._reading.directions.to_master())
        try:
            topic = rules.readable_topic(self._reading.topics, self._request.topic)
        except RequestError as error:
            return PullOutcome.refused(error.reply)
        if self._request.queue_id >= topic.read_queues:
            peer = self._exchange.channel.peer
            refusal = rules.illegal_queue(topic, self._request.queue_id, peer)
            return PullOutcome.refused(refusal.reply)
        try:
            return self.look()
        except Exception:
            # Nobody else hears of it here: without an answer the client waits for nothing.
            logger.exception(
                "held_pull_failed topic=%s queue=%d", self._request.topic, self._request.queue_id
            )
            failed = Reply(ResponseCode.SYSTEM_ERROR, "internal error, see the broker's log")
            return PullOutcome.refused(failed)

    def _reset(self, offset: int) -> PullOutcome:
        low, high = self._reading.store.queue_range(self._request.topic, self._request.queue_id)
        return PullOutcome(
            result=RESET,
            remark="OFFSET_RESET",
            next_offset=offset,
            min_offset=low,
            max_offset=high,
        )

    def _gone(self) -> None:
        if self._held is not None:
            self._reading.hold.forget(self._held)
            self._weight.total -= self._chosen.weight
        self._exchange.finish()

    def _read(self) -> ReadResult:
        began_ns = perf_counter_ns()
        found = self._reading.store.read(
            self._request.topic,
            self._request.queue_id,
            self._offset,
            messages_max=self._request.messages_max,
            bytes_max=self._request.bytes_max,
            tags=self._chosen.tags,
            wanted=self._chosen.wanted,
        )
        traffic = self._reading.traffic
        traffic.note_read(perf_counter_ns() - began_ns)
        if not found.count:
            traffic.missed += 1
        return found

    def _outcome(self, found: ReadResult) -> PullOutcome:
        suggested = MASTER_ID
        if found.count:
            suggested = self._reading.directions.after(found.body, self._request.queue_id)
            asked = self._request
            self._reading.traffic.delivered(asked.group, asked.topic, found.count, len(found.body))
        elif not self._reading.serving_rules.leads:
            # Behind the master's end there may be more, and no place that is really too far.
            return PullOutcome.redirected(self._offset, self._reading.directions.to_master())
        outcome = PullOutcome.of_read(found, self._request.queue_offset, suggested)
        if outcome.result is OFFSET_MOVED and self._offset < found.min_offset:
            outcome.remark += went_for_room(self._reading.store)
        return outcome


def went_for_room(store: MessageStore) -> str:
    """Return what an answer adds to a read before a queue's start: why it is gone, if no setting
    asked for it."""
    if store.forced.last() is None:
        return ""
    return ": the messages before minOffset went for want of room on the broker's disk"
