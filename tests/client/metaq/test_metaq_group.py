"""What MetaQ's session factories make, with a broker and a ZooKeeper: asyncio and blocking."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import NoNodeError

from imago_client import NoRouteError
from imago_client.metaq import (
    DropPolicy,
    LocalFileOffsets,
    MetaqConfig,
    MetaqSessionFactory,
    PartitionId,
    RecoverManager,
    ShareStrategy,
    StoredOffset,
)
from imago_testing.peers.metaq_group import Taken, committed, put, quick, until
from imago_testing.processes.zookeeper import end_session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kazoo.client import KazooClient

    from imago_client.metaq import MetaqMessage

pytestmark = [pytest.mark.zookeeper]


async def test_messages_take_turns_over_partitions_and_come_back(
    factory: MetaqSessionFactory, tree: KazooClient
) -> None:
    producer = factory.producer()
    results = [await producer.send("orders", b"m%d" % number) for number in range(5)]
    assert [each.partition.number for each in results] == [1, 2, 3, 0, 1]
    assert {each.partition.broker_id for each in results} == {0}
    taken = Taken()
    async with factory.consumer(quick()).subscribe("orders", taken) as consumer:
        await until(lambda: len(taken.messages) == 5, "all have come")
        folder = "/meta/consumers/g"
        assert tree.get_children(f"{folder}/ids") == [consumer.consumer_id]
        assert tree.get(f"{folder}/ids/{consumer.consumer_id}")[0] == b"orders"
        assert tree.get(f"{folder}/owners/orders/0-2")[0].decode() == consumer.consumer_id
    assert sorted(taken.bodies) == [b"m%d" % number for number in range(5)]
    last = results[4]
    assert committed(tree, "g")["0-1"] == b"%d-%d" % (last.message_id, last.offset + 22)
    assert tree.get_children(f"{folder}/ids") == tree.get_children(f"{folder}/owners/orders") == []
    with pytest.raises(NoRouteError, match="'nothing'"):
        await producer.send("nothing", b"x")
    again = Taken()
    async with factory.consumer(quick()).subscribe("orders", again):
        await put(factory, 1)
        await until(lambda: again.messages, "what is new has come")
    assert again.bodies == [b"m0"]


@pytest.mark.parametrize("strategy", ShareStrategy)
async def test_members_share_partitions_and_lose_nothing_as_they_come_and_go(
    factory: MetaqSessionFactory, config: MetaqConfig, strategy: ShareStrategy
) -> None:
    taken = Taken()
    sent: set[bytes] = set()
    producer = factory.producer()
    shares: list[Any] = []

    def all_read() -> bool:
        found = [partition for member in shares for partition in member.positions]
        return len(found) == len(set(found)) == 4

    async def send(count: int) -> None:
        for _ in range(count):
            body = b"%d" % len(sent)
            sent.add(body)
            await producer.send("orders", body)

    async with MetaqSessionFactory(config) as other:
        for round_ in range(3):
            for made in (factory, other, other)[: round_ + 1]:
                member = made.consumer(quick(strategy=strategy)).subscribe("orders", taken)
                await member.start()
                shares.append(member)
                await send(20)
            await until(all_read, "all partitions are shared")
            while len(shares) > 1:
                await shares.pop(0).stop()
                await send(20)
                await until(all_read, "those that are left read all")
        await until(lambda: set(taken.bodies) == sent, "nothing is left out")
        for member in shares:
            await member.stop()


def owners(tree: KazooClient) -> list[str]:
    """Return who has a partition, as often as he has one."""
    folder = "/meta/consumers/g/owners/orders"
    found = []
    for name in tree.get_children(folder):
        with contextlib.suppress(NoNodeError):  # gone meanwhile
            found.append(tree.get(f"{folder}/{name}")[0].decode())
    return sorted(found)


async def test_member_whose_session_ends_leaves_its_share_and_comes_back(
    factory: MetaqSessionFactory, config: MetaqConfig, tree: KazooClient
) -> None:
    taken, other_taken = Taken(), Taken()
    async with (
        factory.consumer(quick()).subscribe("orders", taken) as member,
        MetaqSessionFactory(config) as second,
        second.consumer(quick()).subscribe("orders", other_taken) as other,
    ):
        await until(lambda: len(member.positions) == len(other.positions) == 2, "they share")
        assert config.zookeeper is not None
        await asyncio.to_thread(end_session, config.zookeeper, factory.tree._client)
        await until(lambda: factory.tree.sessions == 1, "the session is known to be lost")
        share = sorted(2 * [member.consumer_id, other.consumer_id])
        await until(lambda: owners(tree) == share, "they share again, all of it")
        bodies = await put(factory, 40)
        await until(
            lambda: set(taken.bodies) | set(other_taken.bodies) == set(bodies), "all have come"
        )


async def test_offsets_of_a_storage_of_ones_own_and_from_the_end(
    factory: MetaqSessionFactory, tree: KazooClient, tmp_path: Path
) -> None:
    await put(factory, 8)
    stored: dict[tuple[str, PartitionId], StoredOffset] = {}

    class Own:
        def load(self, group: str, partition: PartitionId) -> StoredOffset | None:
            return stored.get((group, partition))

        def save(self, group: str, offsets: Mapping[PartitionId, StoredOffset]) -> None:
            stored.update({(group, each): offset for each, offset in offsets.items()})

    taken = Taken()
    consumer = factory.consumer(quick(from_end=True), offsets=Own())
    async with consumer.subscribe("orders", taken):
        await until(lambda: set(consumer.positions.values()) == {58}, "it stands at the end")
        await put(factory, 4)
        await until(lambda: len(taken.messages) == 4, "what is new has come")
    assert {offset.position for offset in stored.values()} == {87}
    assert committed(tree, "g") == {}
    file, late = tmp_path / "offsets.json", Taken()
    async with factory.consumer(quick(), offsets=LocalFileOffsets(file)).subscribe("orders", late):
        await until(lambda: len(late.messages) == 12, "all have come")
    assert LocalFileOffsets(file).load("g", PartitionId("orders", 0, 1)) is not None
    again = Taken()
    config = quick(always_from_end=True)
    consumer = factory.consumer(config, offsets=LocalFileOffsets(file))
    async with consumer.subscribe("orders", again):
        await until(lambda: set(consumer.positions.values()) == {87}, "it stands at the end")
    assert not again.messages


async def test_message_that_is_refused_is_kept_and_taken_later(
    factory: MetaqSessionFactory, tmp_path: Path
) -> None:
    refused = True
    taken = Taken()

    async def handle(message: MetaqMessage) -> None:
        if message.payload == b"m1" and refused:
            raise ValueError("not yet")
        await taken(message)

    bodies = await put(factory, 8)
    config = quick(retries_max=1)
    manager = RecoverManager(tmp_path, every_s=0.05, first_s=0.05)
    async with factory.consumer(config, on_reject=manager).subscribe("orders", handle):
        await until(lambda: len(taken.messages) == 7, "the others have come")
        await until(lambda: manager.count == 1, "one is kept")
    refused = False
    manager = RecoverManager(tmp_path, every_s=0.05, first_s=0.05)
    async with factory.consumer(config, on_reject=manager).subscribe("orders", handle):
        await until(lambda: len(taken.messages) == 8, "the next one takes what was kept")
        await until(lambda: manager.count == 0, "and forgets it")
    assert sorted(taken.bodies) == sorted(bodies)
    kept = taken.messages[-1]
    assert (kept.payload, kept.attribute, kept.partition.topic) == (b"m1", "red", "orders")
    refused = True
    taken.messages.clear()
    consumer = factory.consumer(quick("h", retries_max=0), on_reject=DropPolicy())
    async with consumer.subscribe("orders", handle):
        size = 8 * 29
        await until(lambda: sum(consumer.positions.values()) == size, "one is dropped")
    assert len(taken.messages) == 7


@pytest.mark.full
async def test_filter_leaves_messages_out(factory: MetaqSessionFactory) -> None:
    await put(factory, 12)
    taken = Taken()

    def wanted(group: str, message: MetaqMessage) -> bool:
        return group == "g" and message.payload in (b"m3", b"m7")

    consumer = factory.consumer(quick()).subscribe("orders", taken, wanted=wanted)
    async with consumer:
        size = 10 * 29 + 2 * 30
        await until(lambda: sum(consumer.positions.values()) == size, "all is passed")
    assert sorted(taken.bodies) == [b"m3", b"m7"]
