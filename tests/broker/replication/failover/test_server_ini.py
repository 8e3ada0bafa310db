"""MetaQ's server.ini on several members: what changes there is brought in once, by one leader."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.topics.sealing import seal_of
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.clusters.shard_brokers import ShardBrokers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

CHANGED = "topics.orders.queues=4"


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    """Members 0 and 1, whose file names two topics; 0 leads."""
    file = ("metaq.server_ini=server.ini", "topics.orders.queues=2", "topics.old.queues=1")
    made = ShardBrokers(tmp_path, *file, replicas=2)
    try:
        await made.start(0, 1)
        await made.all_in_sync(0, 1)
        yield made
    finally:
        await made.close()


async def hand_over(shard: ShardBrokers, number: int) -> Broker:
    """Stop the member that leads; return the other one, which leads then."""
    assert await shard.led() == number
    await shard.stop(number)
    return shard.brokers[await shard.led(but=number)]


async def restart(shard: ShardBrokers, number: int, *more: str) -> None:
    shard.more[number] = more
    await shard.start(number)
    await shard.all_in_sync(0, 1)


def reload(broker: Broker, **queues: int) -> None:
    """Have a member read a file that names these topics."""
    topics = {name: {"queues": number} for name, number in queues.items()}
    broker.reload(replace(broker.config, topics=topics))


def queues_of(broker: Broker, name: str) -> int:
    topic = broker.topics.get(name)
    assert topic is not None
    return topic.write_queues


def by_tool(broker: Broker, name: str, queues: int) -> None:
    topic = broker.topics.get(name) or TopicConfig(name=name)
    broker.topics.create_or_update(replace(topic, read_queues=queues, write_queues=queues))


async def test_what_tools_have_changed_since_stays_when_another_member_leads(
    shard: ShardBrokers,
) -> None:
    one = await hand_over(shard, 0)
    await restart(shard, 0)
    for broker in (one, shard.brokers[0]):
        reload(broker, orders=4)
    assert queues_of(one, "orders") == 4
    by_tool(one, "orders", 6)
    assert one.topics.delete("old")
    by_tool(one, "old", 3)
    zero = await hand_over(shard, 1)
    assert queues_of(zero, "orders") == 6
    old = zero.topics.get("old")
    assert old is not None
    assert (old.write_queues, seal_of(old)) == (3, None)


async def test_a_file_that_a_member_finds_at_its_start_undoes_no_tool(shard: ShardBrokers) -> None:
    one = await hand_over(shard, 0)
    reload(one, orders=4, old=1)
    by_tool(one, "orders", 6)
    await restart(shard, 0, CHANGED)
    assert queues_of(await hand_over(shard, 1), "orders") == 6


@pytest.mark.parametrize("restarted", [True, False])
async def test_what_no_leader_has_brought_in_yet_counts_when_a_member_leads(
    shard: ShardBrokers, *, restarted: bool
) -> None:
    """Member 1 has the new file, and has never led; member 0 still runs by the old one."""
    if restarted:
        await shard.stop(1)
        await restart(shard, 1, CHANGED)
    else:
        reload(shard.brokers[1], orders=4, old=1)
    assert queues_of(shard.brokers[0], "orders") == 2
    assert queues_of(await hand_over(shard, 0), "orders") == 4
