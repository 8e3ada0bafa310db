"""POPs of other protocols' fast paths: what is there now, without a request of remoting."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.features.pop.giving import give
from imago_broker.features.pop.pop_requests import REVIVE_QUEUE, unwritten
from imago_broker.features.pop.priorities import has_priorities
from imago_broker.features.pop.waiting import ANY_QUEUE
from imago_broker.processors.rocketmq.exchange import OK, RequestError
from imago_broker.processors.rocketmq.pull.pull_request import BYTES_MAX
from imago_broker.service.puts.put_status import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.features.pop.giving import PopParts
    from imago_broker.features.pop.pop_requests import PopProcessor
    from imago_broker.features.pop.reading import PopAsk
    from imago_broker.model.groups import GroupConfig
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.service.groups.channel import Reply


_Wanted = tuple[str, str, tuple[str, str], int, int]
"""Group, topic, expression, how many messages at most, and for how many milliseconds."""
_TAG: Final = "TAG"
ASKS_KEPT_MAX = 1024
"""What is asked for again and again; all is found again where there is more."""
QUEUES_KEPT_MAX = 16
"""Of a topic of which that is kept: each of them is first in turn."""


class _Known(NamedTuple):
    """What was found for a request, as long as topic and group are what they were."""

    topic: TopicConfig
    group: GroupConfig
    asks: dict[int, PopAsk]
    """By the queue that is read first."""


class ShortPops:
    """Takes what is there. Whoever has to wait, or to be refused, goes the slow path."""

    def __init__(self, parts: PopParts, popping: PopProcessor) -> None:
        self._parts, self._popping = parts, popping
        self._kept: dict[_Wanted, _Known] = {}

    def take_now(
        self,
        group: str,
        topic: str,
        expression: tuple[str, str],
        messages_max: int,
        invisible_ms: int,
        given: Callable[[Reply, bytes, int, int, dict[int, int]], None],
    ) -> bool:
        """Have messages of all queues given; False: there are none now, or it is refused.

        `expression`: its kind, and itself. `given` gets whether it went well, the records, stamp
        and queue of the receipts, and the first offset in each queue.
        """
        parts = self._parts
        if not parts.pops.ready:
            return False
        try:
            ask = self._ask((group, topic, expression, messages_max, invisible_ms))
        except RequestError:
            return False
        now_ms, began_ns = parts.clock.epoch_ms(), perf_counter_ns()
        take = parts.reader.take(ask, now_ms)
        parts.traffic.note_read(perf_counter_ns() - began_ns)
        if not take.queues:
            return False
        starts = {look.queue_id: next(iter(look.times)) for look in take.queues}

        def written(status: PutStatus, body: bytes) -> None:
            reply = OK if status is PutStatus.OK else unwritten(status)
            given(reply, body, take.stamp, REVIVE_QUEUE, starts)

        give(parts, ask, take, now_ms, written)
        return True

    def _ask(self, wanted: _Wanted) -> PopAsk:
        """Return what is asked for as it was found before, where all is as it was.

        Settings of topics and groups are never changed, but replaced.
        """
        group, topic, expression, messages_max, invisible_ms = wanted
        popping, settings = self._popping, self._parts.groups.get(group)
        config, known = self._parts.topics.get(topic), self._kept.get(wanted)
        if known is not None and known.topic is config and known.group is settings:
            ask = known.asks.get((popping.turns + 1) % known.topic.read_queues)
            if ask is not None and popping.allowance() == ask.bytes_max:
                popping.turns += 1
                popping.forget_resets(group, topic, ask.queue_ids)
                return ask
        else:
            known = None
        ask = popping.ask(
            (group, topic, ANY_QUEUE),
            expression,
            "",
            messages_max=messages_max,
            invisible_ms=invisible_ms,
            from_end=True,
            in_order=False,
        )
        if known is None and config is not None and settings is not None and _is_plain(config):
            if len(self._kept) >= ASKS_KEPT_MAX:
                self._kept.clear()
            known = self._kept[wanted] = _Known(config, settings, {})
        if known is not None and expression[0] == _TAG and ask.bytes_max == BYTES_MAX:
            known.asks[ask.queue_ids[0]] = ask
        return ask


def _is_plain(topic: TopicConfig) -> bool:
    """Return whether the queues of a topic are read in turn, and are few enough to keep."""
    return 0 < topic.read_queues <= QUEUES_KEPT_MAX and not has_priorities(topic)
