"""Sealed topics serve producers that have not looked, until their time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.model.topics.sealing import DRAIN
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.topics.lingering import Lingering
from imago_broker.service.topics.topics import TopicService
from imago_testing.stores.manual import ManualStore
from imago_testing.virtual.clocks import ManualClock

if TYPE_CHECKING:
    import asyncio

    from imago_log.store import MessageStore


def service(store: ManualStore) -> TopicService:
    return TopicService(
        cast("MessageStore", store),
        default_level=Acknowledgement.LEADER,
        topics_max=10,
        auto_create_enabled=True,
        default_queues=8,
        before_change=lambda: None,
    )


class ManualLoop:
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, object, tuple[object, ...]]] = []

    def call_later(self, seconds: float, call: object, *args: object) -> ManualLoop:
        self.timers.append((seconds, call, args))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def fire(self) -> None:
        _, call, args = self.timers.pop()
        assert callable(call)
        call(*args)


def taken(topics: TopicService) -> int:
    handle = topics.handles.of("t")
    assert handle is not None
    assert len(handle.tails) == handle.partitions
    return handle.partitions


def test_queues_take_messages_until_the_time_is_over_by_the_wall_clock() -> None:
    store, clock, loop = ManualStore(), ManualClock(), ManualLoop()
    topics = service(store)
    Lingering(topics, clock=clock, loop=cast("asyncio.AbstractEventLoop", loop))
    topics.create_or_update(TopicConfig(name="t", write_queues=3, read_queues=3))
    topics.seal("t", until_ms=clock.epoch_ms() + 2000, cause=DRAIN)
    assert taken(topics) == 3
    assert topics.get("t").write_queues == 0  # type: ignore[union-attr]  # made above
    assert [seconds for seconds, _, _ in loop.timers] == [2.0]
    clock.advance(1500)
    loop.fire()
    assert taken(topics) == 3, "the timer may be early"
    clock.advance(500)
    loop.fire()
    assert taken(topics) == 0
    assert loop.timers == []
    topics.unseal("t")
    assert taken(topics) == 3


def test_the_next_process_serves_them_for_the_rest_of_the_time() -> None:
    store, clock = ManualStore(), ManualClock()
    first = service(store)
    first.create_or_update(TopicConfig(name="t", write_queues=3, read_queues=3))
    first.seal("t", until_ms=clock.epoch_ms() + 2000, cause=DRAIN)
    again, loop = service(store), ManualLoop()
    Lingering(again, clock=clock, loop=cast("asyncio.AbstractEventLoop", loop))
    assert taken(again) == 3
    clock.advance(3000)
    late = service(store)
    Lingering(late, clock=clock, loop=cast("asyncio.AbstractEventLoop", ManualLoop()))
    assert taken(late) == 0


def test_a_cordoned_shard_makes_no_topic_for_a_send_but_those_of_groups() -> None:
    topics = service(ManualStore())
    heard: list[str] = []
    topics.on_change.append(lambda name, _: heard.append(name))
    topics.intake.cordoned = True
    assert heard == ["TBW102"]
    assert not topics.is_public("TBW102")
    assert topics.auto_create("t", default_topic="TBW102", default_queues=4) is None
    retry = topics.auto_create("%RETRY%g", default_topic="TBW102", default_queues=4, for_retry=True)
    assert retry is not None
    topics.intake.cordoned = False
    assert topics.auto_create("t", default_topic="TBW102", default_queues=4) is not None
