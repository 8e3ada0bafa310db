"""POPs of other protocols' short ways: what is there now, without a request of remoting."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from imago_broker.features.pop.giving import give
from imago_broker.features.pop.pop_requests import REVIVE_QUEUE, unwritten
from imago_broker.features.pop.waiting import ANY_QUEUE
from imago_broker.processors.rocketmq.exchange import OK, RequestError
from imago_broker.service.puts.put_status import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.features.pop.giving import PopParts
    from imago_broker.features.pop.pop_requests import PopProcessor
    from imago_broker.service.groups.channel import Reply


class ShortPops:
    """Takes what is there. Whoever has to wait, or to be refused, goes the careful way."""

    def __init__(self, parts: PopParts, popping: PopProcessor) -> None:
        self._parts, self._popping = parts, popping

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
        parts, popping = self._parts, self._popping
        if not parts.pops.ready:
            return False
        try:
            ask = popping.ask(
                (group, topic, ANY_QUEUE),
                expression,
                "",
                messages_max=messages_max,
                invisible_ms=invisible_ms,
                from_end=True,
                in_order=False,
            )
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
