"""Delays as they plug in: levels and timers, their metrics, and how a timer is taken back."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_broker.features.delays.recalling import RecallProcessor
from imago_broker.features.feature import Feature
from imago_broker.metrics import counter, gauge, longest
from imago_broker.processors.rocketmq.access.rights import (
    topic,
)
from imago_broker.processors.rocketmq.installed import Installed
from imago_broker.processors.rocketmq.needs import PUBLISH
from imago_broker.processors.rocketmq.rows import Row
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from imago_broker.metrics import Sample
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.delays.timers.timers import TimerService


def install(parts: RocketmqAssembly) -> Installed:
    """Serve and count what the broker's delays do."""
    recalling = RecallProcessor(
        messages=parts.broker.messages,
        topics=parts.broker.topics,
        timers=parts.delays.timers,
        this=parts.this,
        clock=parts.broker.clock,
        loop=parts.broker.loop,
    )
    levels, timers = parts.delays.levels, parts.delays.timers

    def start() -> None:
        levels.start()
        timers.start()

    def stop() -> None:
        timers.stop()
        levels.stop()

    return Installed(
        parts=parts.delays,
        rows=[
            Row(
                Code.RECALL_MESSAGE,
                recalling.recall,
                parts.lanes.send,
                Asks.CHANGE,
                elsewhere=recalling.elsewhere,
            ),
        ],
        samples=_samples(levels, timers),
        start=start,
        stop=stop,
        needed_from=lambda: min(levels.needed_from(), timers.needed_from()),
        log_shortened=timers.log_shortened,
    )


def _samples(delay: DelayService, timers: TimerService) -> list[Sample]:
    return [
        gauge(
            "timers_pending", "Timed messages that wait until they are due.", lambda: timers.pending
        ),
        counter(
            "timers_fired",
            "Timed messages that were delivered when due.",
            lambda: timers.figures.fired,
        ),
        counter(
            "timers_lost", "Timed messages lost with their log files.", lambda: timers.figures.lost
        ),
        counter(
            "delayed_lost",
            "Messages of delay levels lost with their log files.",
            lambda: delay.lost,
        ),
        counter(
            "delayed_dropped",
            "Delayed and timed messages dropped when due, as their topic was deleted.",
            lambda: delay.dropped + timers.figures.dropped,
        ),
        counter(
            "timers_late_seconds",
            "By how much timed messages were late, summed up in seconds.",
            lambda: timers.figures.late_ms / 1000,
        ),
        counter(
            "timers_late_ms",
            "By how much timed messages were late, summed up in ms; use the seconds.",
            lambda: timers.figures.late_ms,
        ),
        *longest(
            "timers_late",
            "By how much a timed message was late at most.",
            lambda: timers.figures.late_ms_max / 1000,
        ),
    ]


DELAYS: Final = Feature(
    rights=MappingProxyType({Code.RECALL_MESSAGE: topic(PUBLISH)}),
    limited={},
    install=install,
)
