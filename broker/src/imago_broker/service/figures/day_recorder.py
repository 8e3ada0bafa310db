"""Notes every ten seconds what the charts of the last day show, whether anybody looks or not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from imago_broker.core.figures.day_history import DayHistory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_broker.ports import Clock
    from imago_broker.service.figures.traffic import Traffic
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.role import RoleState

PIECE = 64
"""Queues that one turn of the loop looks at."""
COUNTERS: Final = ("messagesIn", "messagesOut", "bytesIn")


class DayRecorder:
    """Takes its part in each look at what has grown: see `UsageFigures`."""

    def __init__(
        self,
        messages: MessageService,
        traffic: Traffic,
        offsets: ConsumerOffsets,
        role: RoleState,
        clock: Clock,
    ) -> None:
        self._messages, self._traffic, self._offsets = messages, traffic, offsets
        self._role, self._clock = role, clock
        self._grown: Counter[str] = Counter()
        self.history = DayHistory(COUNTERS)

    def topic_changed(self, topic: str, config: object | None) -> None:
        """Forget a topic that is gone."""
        if config is None:
            self._grown.pop(topic, None)
            self.history.topics.pop(topic, None)

    def steps(self, grown: Mapping[str, int]) -> Iterator[None]:
        """Note the figures when it is time to, piece by piece; `grown`: messages by topic."""
        self._grown.update(grown)
        now_ms = self._clock.epoch_ms()
        if not self.history.is_due(now_ms):
            return
        moved = self._offsets.take_moved()
        lags: dict[str, int | None] = {}
        if self._role.leads:  # nobody else knows what is committed now
            if self.history.has_room:
                moved = moved.union(self._offsets.groups())
            for group in self.history.admit(now_ms, sorted(moved)):
                yield from self._lag(group, lags)
        now_ms, appended = self._clock.epoch_ms(), self._messages
        totals = (appended.appended, self._traffic.messages, appended.appended_bytes)
        self.history.note(now_ms, dict(zip(COUNTERS, totals, strict=True)), self._grown, lags)
        self._grown.clear()

    def _lag(self, group: str, lags: dict[str, int | None]) -> Iterator[None]:
        store, topics = self._messages.store, self._offsets.noted(group)
        if not topics:
            lags[group] = None
            return
        lag = looked = 0
        for topic, queues in list(topics.items()):
            for queue_id, offset in list(queues.items()):
                lag += max(0, store.queue_range(topic, queue_id)[1] - offset)
                looked += 1
                if looked % PIECE == 0:
                    yield
        lags[group] = lag
        yield
