"""Shards that are drained, come back, are added and removed: real processes, real ZooKeeper."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from imago_client import ConsumerConfig, Message, StartFrom
from imago_client.blocking import Client
from imago_client.blocking.metaq import MetaqClient
from imago_client.metaq import MetaqError
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import Up, up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_client.blocking.rocketmq.group import GroupConsumer

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SECONDS_MAX = 60
LINGER = ("--set", "broker.seal_linger_ms=300")


def imago(running: Up, *arguments: str, code: int = 0) -> Any:
    """Run a command that asks shard-0; return its JSON, or what it said of its failure."""
    admin = running.ready["brokers"][0]["admin"]
    command = [sys.executable, "-m", "imago_cli", *arguments, "--admin", admin, "--json"]
    # A drain waits for a minute for consumers that may come back to a broker that has begun.
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=3 * SECONDS_MAX, check=False
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


@contextlib.contextmanager
def tree(running: Up) -> Iterator[KazooClient]:
    client = KazooClient(hosts=running.ready["zookeeper"])
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def offered(zookeeper: KazooClient, topic: str) -> tuple[list[str], list[str]]:
    """Where MetaQ's producers and consumers find a topic."""
    found = (
        zookeeper.get_children(f"/meta/brokers/{b}/{topic}") for b in ("topics-pub", "topics-sub")
    )
    publish, subscribe = (sorted(names) for names in found)
    return publish, subscribe


def send(client: Client, topic: str, numbers: range) -> set[str]:
    """Send messages round the topic's queues; return the shards that took them."""
    producer = client.producer()
    return {producer.send(Message(topic, b"%d" % n)).queue.shard for n in numbers}


def read(consumer: GroupConsumer, count: int) -> list[int]:
    """Poll until so many messages have come; commit them."""
    found: list[int] = []

    def enough() -> bool:
        found.extend(int(message.body) for message in consumer.poll(0.5))
        consumer.commit()
        return len(found) >= count

    wait_until(enough, seconds_max=SECONDS_MAX, what=f"{count} messages")
    return found


def drained(running: Up, shard: str) -> bool:
    shards = imago(running, "cluster", "status")["shards"]
    return bool(next(one["drained"] for one in shards if one["name"] == shard))


@pytest.mark.full
def test_a_shard_is_drained_comes_back_and_goes_for_good(tmp_path: Path) -> None:
    data, base = tmp_path / "data", free_port_block(40)
    with up(data, "--port-base", str(base), "--shards", "1", *LINGER) as running:
        with Client(running.ready["namesrv"]) as client:
            client.admin.create_topic("orders", queues=2)
            assert send(client, "orders", range(4)) == {"shard-0"}
        assert "no other shard" in imago(running, "shard", "drain", "0", code=1)
    with up(data, "--shards", "2", *LINGER) as running:
        a_shard_is_added(running)
        it_is_drained(running)
    with up(data, *LINGER) as running:
        # For a minute a broker that has begun anew cannot know which groups will come back.
        wait_until(
            lambda: drained(running, "shard-1"),
            seconds_max=2 * SECONDS_MAX,
            what="it is drained after a restart as before",
        )
        it_comes_back(running)
        refused = imago(running, "shard", "remove", "1", "--yes", code=1)
        assert "shard-1 is not drained" in refused
        imago(running, "shard", "drain", "1", "--wait")
        assert "still runs" in imago(running, "shard", "remove", "1", "--yes", code=1)
    shutil.rmtree(data / "shard-1")
    with up(data, "--shards", "1", *LINGER) as running:
        assert imago(running, "shard", "remove", "1", "--yes") == {"removed": "shard-1"}
        (shard,) = imago(running, "cluster", "status")["shards"]
        assert shard["name"] == "shard-0"
        with Client(running.ready["namesrv"]) as client:
            assert send(client, "orders", range(4)) == {"shard-0"}


def a_shard_is_added(running: Up) -> None:
    """New topics come to it by themselves, others when they are spread or moved."""
    with Client(running.ready["namesrv"]) as client:
        client.admin.create_topic("fresh", queues=1)
        assert send(client, "fresh", range(2)) == {"shard-0", "shard-1"}
    assert imago(running, "topic", "spread", "orders")["shards"] == ["shard-0", "shard-1"]
    with Client(running.ready["namesrv"]) as client:
        assert send(client, "orders", range(4, 8)) == {"shard-0", "shard-1"}
    moved = imago(running, "topic", "move", "fresh", "--from", "0", "--to", "1")
    assert (moved["from"], moved["to"]) == ("shard-0", ["shard-1"])
    with Client(running.ready["namesrv"]) as client, tree(running) as zookeeper:
        assert send(client, "fresh", range(2, 4)) == {"shard-1"}
        wait_until(
            lambda: offered(zookeeper, "fresh") == (["1-m"], ["0-m", "1-m"]),
            seconds_max=SECONDS_MAX,
            what="MetaQ's producers find the topic's new place only",
        )


def it_is_drained(running: Up) -> None:
    """Its topics go on elsewhere at once; it is drained when all groups have read it out."""
    bootstrap = running.ready["namesrv"]
    group = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST)
    with Client(bootstrap) as client, tree(running) as zookeeper:
        producer = client.producer()
        producer.send(Message("orders", b"8"))  # it knows the route from before
        with client.group_consumer(group, ["orders", "fresh"]) as consumer:
            assert sorted(read(consumer, 13)) == sorted([*range(9), *range(4)])
        before = send(client, "orders", range(100, 104))
        assert before == {"shard-0", "shard-1"}
        answer = imago(running, "shard", "drain", "shard-1")
        assert (answer["draining"], answer["drained"]) == (True, False)
        imago(running, "shard", "drain", "shard-1")
        wait_until(
            lambda: left(running)["takesMessagesUntil"] is None,
            seconds_max=SECONDS_MAX,
            what="no producer is served any more",
        )
        shards = {producer.send(Message("orders", b"%d" % n)).queue.shard for n in range(104, 112)}
        assert shards == {"shard-0"}, "producers go elsewhere without an error"
        assert send(client, "fresh", range(200, 202)) == {"shard-0"}, "moved back by the drain"
        assert offered(zookeeper, "orders") == (["0-m"], ["0-m", "1-m"])
        a_metaq_put_is_refused(running)
        now = left(running)
        assert (now["topicsToMove"], now["unread"], now["messages"]) == (0, ["orders"], 2)
        assert now["groups"] == {"g": 2}
        assert now["bytes"] > 0
        assert imago(running, "shard", "drained", "1", code=1)["drained"] is False
        assert "shard-1 is cordoned" in imago(running, "shard", "drain", "0", code=1)
        with client.group_consumer(group, ["orders", "fresh"]) as consumer:
            assert sorted(read(consumer, 14)) == [*range(100, 112), 200, 201]
        imago(running, "shard", "drained", "1", "--wait")


def it_comes_back(running: Up) -> None:
    imago(running, "shard", "undrain", "1")

    def takes_messages() -> bool:
        with Client(running.ready["namesrv"]) as client:
            return send(client, "orders", range(300, 308)) == {"shard-0", "shard-1"}

    wait_until(takes_messages, seconds_max=SECONDS_MAX, what="the shard takes its topics again")
    with Client(running.ready["namesrv"]) as client:
        group = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST)
        with client.group_consumer(group, ["orders"]) as consumer:
            assert set(read(consumer, 8)) == set(range(300, 308))


def left(running: Up) -> dict[str, Any]:
    (found,) = (s for s in imago(running, "cluster", "status")["shards"] if s["id"] == 1)
    return dict(found["drain"] or {"takesMessagesUntil": 0})


def a_metaq_put_is_refused(running: Up) -> None:
    server = running.ready["brokers"][1]["metaq"]
    closed = r"partition\[1-0\] has been closed"
    with (
        MetaqClient(f"meta://{server}") as client,
        pytest.raises(MetaqError, match=closed),
    ):
        client.send("orders", b"x", partition=0)
