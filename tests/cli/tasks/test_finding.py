"""A message is found by whatever one knows of it; a group that is read from is not deleted."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cli.tasks.conftest import Shell, TwoShards

    from imago_client import ReceivedMessage

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.fixture(scope="module")
def sent(two_shards: Any) -> list[Any]:
    """One message on each shard, with a key; how their sends were answered."""
    from imago_client import Message, MessageQueue
    from imago_client.blocking import Client

    with Client(two_shards.running.ready["namesrv"]) as client:
        client.admin.create_topic("orders", queues=1)
        producer = client.producer()
        return [
            producer.send(
                Message("orders", b"of %d" % shard, keys=(f"key-{shard}",)),
                queue=MessageQueue("orders", f"shard-{shard}", 0),
            )
            for shard in range(2)
        ]


@pytest.mark.parametrize("shard", [0, 1])
def test_a_message_is_found_by_each_thing_one_may_know(
    shell: Shell, sent: list[Any], shard: int
) -> None:
    place = ("--queue", f"orders/shard-{shard}/0", "--offset", "0")
    by_place = shell.json("message", "get", *place)
    assert by_place["text"] == f"of {shard}"
    assert by_place["uniqueId"] == sent[shard].message_id
    ways = [
        (sent[shard].message_id,),
        (by_place["id"],),
        ("--topic", "orders", "--key", f"key-{shard}"),
        ("--queue", f"orders/{shard}/0", "--offset", "0"),
    ]
    for way in ways:
        assert shell.json("message", "get", *way) == by_place, way
    shown = shell.done("message", "get", by_place["id"])
    assert shown.startswith(f"orders/shard-{shard}/0 offset 0\n")
    assert f"  body: of {shard}\n" in shown


@pytest.mark.usefixtures("sent")
def test_what_is_no_message_is_said(shell: Shell) -> None:
    ended = shell.run("message", "get", "0" * 32)
    assert (ended.returncode, "no shard has such a message" in ended.stderr) == (1, True)
    ended = shell.run("message", "get", "--queue", "orders/shard-0/0", "--offset", "99")
    assert (ended.returncode, "no shard has such a message" in ended.stderr) == (1, True)
    for wrong in ((), ("--key", "k"), ("--queue", "orders"), ("xyz", "--key", "k")):
        assert shell.run("message", "get", *wrong).returncode == 2, wrong


def test_metaqs_masters_are_found_by_the_name_service(shell: Shell) -> None:
    shell.done("topic", "create", "both")
    shell.done("produce", "both", "a", "b", "c", "d", "--protocol", "metaq")
    assert sorted(shell.done("consume", "both", "--protocol", "metaq").split()) == list("abcd")
    shards = {row["shard"] for row in shell.json("consume", "both")}
    assert shards == {"shard-0", "shard-1"}


def test_a_group_with_members_is_not_deleted(shell: Shell) -> None:
    import os
    import subprocess
    import sys

    shell.done("produce", "read", "a", "--create")
    consume = [sys.executable, "-m", "imago_cli", "consume", "read", "--group", "billing"]
    environment = os.environ | shell.cluster.environment
    with subprocess.Popen(consume, env=environment, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"a\n"
        ended = shell.run("group", "delete", "billing", "--yes")
        assert ended.returncode == 1
        assert "group billing has 1 member" in ended.stderr
        assert "stop its consumers" in ended.stderr
        assert "billing" in shell.done("group", "list")
        reader.send_signal(signal.SIGINT)
        assert reader.wait(60) == 130
    shell.done("group", "delete", "billing", "--yes")
    assert "billing" not in shell.done("group", "list")


@pytest.mark.usefixtures("sent")
def test_a_trace_tells_who_sent_and_who_handled(shell: Shell, two_shards: TwoShards) -> None:
    from imago_client import Client, ClientConfig, ConsumerConfig, Message

    config = ClientConfig(bootstrap=(two_shards.running.ready["namesrv"],), trace=True)

    async def send_and_handle() -> str:
        handled = asyncio.Event()

        async def handle(_: Sequence[ReceivedMessage]) -> None:
            handled.set()

        async with Client(config) as client:
            await client.admin.create_topic("traced", queues=1)
            group = ConsumerConfig(group="tracers", start_from="earliest")
            async with client.push_consumer(group, ["traced"], handle), asyncio.timeout(60):
                sent = await client.producer().send(Message("traced", b"x", keys=("traced-1",)))
                await handled.wait()
        return sent.message_id

    unique = asyncio.run(send_and_handle())
    for name in (unique, unique.lower(), "traced-1"):
        sent, handled = shell.json("message", "trace", name)["steps"]
        assert (sent["what"], sent["group"], sent["outcome"]) == (
            "sent",
            "IMAGO_PRODUCER",
            "success",
        )
        assert sent["where"].startswith("traced at 127.0.0.1:")
        assert (handled["what"], handled["group"], handled["where"]) == (
            "handled",
            "tracers",
            "try 1",
        )
        assert (handled["outcome"], handled["client"].startswith("127.0.0.1:")) == ("success", True)
    shown = shell.run("message", "trace", unique, "--count", "1")
    assert "only the last 1 messages" in shown.stderr
    none = shell.run("message", "trace", "0" * 32)
    assert (none.returncode, "enableMsgTrace" in none.stderr) == (1, True)
    none = shell.run("message", "trace", unique, "--trace-topic", "nowhere")
    assert (none.returncode, "no client has told" in none.stderr) == (1, True)


@pytest.mark.usefixtures("sent")
def test_what_waits_is_listed_over_all_shards_and_taken_back(
    shell: Shell, two_shards: TwoShards
) -> None:
    from imago_client import Message, MessageQueue
    from imago_client.blocking import Client

    with Client(two_shards.running.ready["namesrv"]) as client:
        producer = client.producer()
        later = [
            producer.send(
                Message("orders", b"later", delay_ms=hours * 3_600_000, keys=("k",)),
                queue=MessageQueue("orders", f"shard-{shard}", 0),
            )
            for hours, shard in ((3, 0), (1, 1), (2, 0))
        ]
        level = producer.send(Message("orders", b"level", delay_level=18))
    ids = [later[1].message_id, later[2].message_id, later[0].message_id]
    found = shell.json("message", "scheduled", "--count", "2")
    shown = [one["uniqueId"] for one in found["messages"]]
    assert (shown[0], found["waiting"], found["cut"]) == (ids[0], 4, True)
    whole = shell.json("message", "scheduled", "--topic", "orders")["messages"]
    assert [one["uniqueId"] for one in whole if one["level"] is None] == ids
    assert [one["shard"] for one in whole if one["level"] is None] == ["shard-1", *["shard-0"] * 2]
    assert "there are more" not in shell.run("message", "scheduled").stderr
    assert shell.json("message", "scheduled", "--from", "2100-01-01")["messages"] == []
    ended = shell.run("message", "scheduled", "--from", "soon")
    assert (ended.returncode, "--from soon: no time" in ended.stderr) == (2, True)
    assert shell.run("message", "recall", ids[0], "--yes").returncode == 0
    left = shell.json("message", "scheduled")["messages"]
    assert ids[0] not in [one["uniqueId"] for one in left]
    again = shell.run("message", "recall", ids[0], "--yes")
    assert (again.returncode, "waits for its time" in again.stderr) == (1, True)
    ended = shell.run("message", "recall", level.message_id, "--yes")
    assert (ended.returncode, "by delay level 18" in ended.stderr) == (1, True)
    asked = shell.run("message", "recall", ids[1])
    assert (asked.returncode, "add --yes" in asked.stderr) == (2, True)


def test_a_topic_is_made_for_metaq_only_where_that_is_asked_for(shell: Shell) -> None:
    words = ("produce", "by-metaq", "hello", "--protocol", "metaq")
    ended = shell.run(*words)
    assert (ended.returncode, "there is no topic by-metaq" in ended.stderr) == (1, True)
    assert "1 sent" in shell.run(*words, "--create").stderr
    assert "by-metaq" in shell.done("topic", "list")
    assert shell.json("consume", "by-metaq")["body"] == "hello"
