"""Sealed topics go on taking messages for a while: producers read routes now and then only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.topics.sealing import seal_of

if TYPE_CHECKING:
    import asyncio

    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.ports import Clock
    from imago_broker.service.topics.topics import TopicService

LOOK_SECONDS_MAX = 60.0
"""The wall clock may step: every topic is checked within this time."""


class Lingering:
    """One timer for each sealed topic whose time has not come yet."""

    def __init__(
        self, topics: TopicService, *, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        topics.on_change.append(self._changed)
        for config in topics.all():
            self._changed(config.name, config)

    def close(self) -> None:
        """Watch no topic any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _changed(self, name: str, config: TopicConfig | None) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        seal = seal_of(config) if config is not None else None
        left_ms = seal.until_ms - self._clock.epoch_ms() if seal is not None else 0
        self._topics.handles.linger(name, left_ms > 0)
        if left_ms > 0:
            seconds = min(left_ms / 1000, LOOK_SECONDS_MAX)
            self._timers[name] = self._loop.call_later(seconds, self._look, name)

    def _look(self, name: str) -> None:
        self._changed(name, self._topics.get(name))
