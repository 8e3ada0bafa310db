"""Puts that make their topic: answered once clients can find it, and not for ever later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import registration
from imago_broker.ports import CoordinatorUnavailableError
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import metaq_peer, put_frame, put_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.model.registry.cluster import TopicPlacement


class Awaited:
    """Has the registry take a topic only when the test says so."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.written = asyncio.Event()
        original = broker.coordinator.publish_topic

        async def publish(placement: TopicPlacement) -> None:
            self.asked.append(placement.name)
            await self.written.wait()
            await original(placement)

        monkeypatch.setattr(broker.coordinator, "publish_topic", publish)


@pytest.fixture
async def maker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker that makes any topic."""
    async with running_broker(tmp_path, "metaq.auto_create_topic=true") as running:
        yield running


async def test_a_put_that_makes_a_topic_is_answered_when_clients_can_find_it(
    maker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_place(await one_put(maker, "known"))
    registry = Awaited(maker, monkeypatch)
    async with metaq_peer(maker.metaq_port) as peer, metaq_peer(maker.metaq_port) as other:
        first = [put_frame("known", 0, b"before", opaque=1), put_frame("new", 0, b"1", opaque=2)]
        then = [put_frame("known", 0, b"after", opaque=3), put_frame("new", 0, b"2", opaque=4)]
        await peer.send(b"".join([*first, *then]))
        await other.send(put_frame("new", 1, b"3", opaque=5))
        assert opaques(await peer.frames(1)) == [1]
        # Others are served meanwhile: those who want nothing of the new topic.
        put_place(await one_put(maker, "known"))
        assert registry.asked == ["new"]
        end = maker.store.log_end
        put_place(await one_put(maker, "known"))
        assert maker.store.log_end > end, "nobody waits for the new topic but who puts there"
        assert maker.store.queue_range("new", 0) == (0, 0)
        registry.written.set()
        assert opaques(await peer.frames(3)) == [2, 3, 4]
        assert opaques(await other.frames(1)) == [5]
        await peer.send(put_frame("new", 0, b"4", opaque=6))
        assert opaques(await peer.frames(1)) == [6]
        assert maker.topics.handles.unpublished == set()


@pytest.mark.parametrize("fails", [True, False], ids=["the registry refuses", "it hangs"])
async def test_a_registry_that_is_away_does_not_make_puts_fail(
    maker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: bool,
) -> None:
    monkeypatch.setattr(registration, "NEW_TOPIC_SECONDS_MAX", 0.05)

    async def publish(_: TopicPlacement) -> None:
        if fails:
            raise CoordinatorUnavailableError("no ZooKeeper")
        await asyncio.Event().wait()

    monkeypatch.setattr(maker.coordinator, "publish_topic", publish)
    put_place(await one_put(maker, "new"))
    put_place(await one_put(maker, "new"))
    assert maker.store.queue_range("new", 0) == (0, 2)
    told = "topic_not_published topic=new" if fails else "topic_not_published_in_time topic=new"
    assert told in caplog.text


async def test_a_peer_that_half_closes_gets_the_answer_that_waits_for_the_registry(
    maker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Awaited(maker, monkeypatch)
    reader, writer = await asyncio.open_connection("127.0.0.1", maker.metaq_port)
    writer.write(put_frame("new", 0, b"1", opaque=7))
    writer.write_eof()
    while not registry.asked:  # noqa: ASYNC110  the broker's own task
        await asyncio.sleep(0)
    registry.written.set()
    assert b"result 200" in await reader.read()
    writer.close()


async def one_put(broker: Broker, topic: str) -> bytes:
    async with metaq_peer(broker.metaq_port) as peer:
        return await peer.put(topic, 0, b"x")


def opaques(frames: list[bytes]) -> list[int]:
    for frame in frames:
        assert frame.startswith(b"result 200 "), frame
    return [int(frame.split(b"\r\n")[0].split()[3]) for frame in frames]
