"""Topics go from A to B and groups with them; clients fail over and back, nothing in circles."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from imago_client import Message
from imago_client.blocking import Client
from imago_client.blocking.metaq import MetaqClient
from imago_mirror import copier, following, note_keeper
from imago_mirror.core import copying
from imago_mirror.mirror import RunningMirror
from imago_mirror.settings import read_settings
from imago_testing.clusters.mirrors import mirrored, write_config
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from imago_client.message_queue import MessageQueue
    from imago_client.received import ReceivedMessage
    from imago_mirror.settings import MirrorSettings
    from imago_testing.clusters.mirrors import Pair

pytestmark = pytest.mark.processes


def imago(*words: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "imago_cli", *words],
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout, done.stderr


def everything(client: Client, topic: str) -> dict[MessageQueue, list[ReceivedMessage]]:
    consumer = client.pull_consumer("checker")
    found: dict[MessageQueue, list[ReceivedMessage]] = {}
    for queue in consumer.queues(topic):
        at, end = consumer.min_offset(queue), consumer.max_offset(queue)
        found[queue] = []
        while at < end:
            pulled = consumer.pull(queue, at)
            found[queue] += pulled.messages()
            at = pulled.next_offset
    return found


def bodies(client: Client, topic: str) -> list[bytes]:
    return [each.body for queue in everything(client, topic).values() for each in queue]


def send(client: Client, topic: str, *texts: str) -> None:
    producer = client.producer()
    for text in texts:
        producer.send(Message(topic, text.encode(), keys=(f"key-{text}",), tags="paid"))


def consume_some(client: Client, group: str, topic: str, share: float) -> set[bytes]:
    """Have a group consume a share of each queue; return what it has consumed."""
    consumer, consumed = client.pull_consumer(group), set[bytes]()
    for queue, messages in everything(client, topic).items():
        upto = int(len(messages) * share)
        consumed |= {each.body for each in messages[:upto]}
        consumer.commit(queue, upto)
    return consumed


def left_for(client: Client, group: str, topic: str) -> set[bytes]:
    """Return what a group has still to read."""
    consumer, found = client.pull_consumer(group), set[bytes]()
    for queue, messages in everything(client, topic).items():
        at = consumer.committed(queue)
        assert at is not None, f"{queue}: the group might begin at its end"
        found |= {each.body for each in messages if each.offset >= at}
    return found


def test_a_topic_of_both_protocols_is_at_the_target_as_it_was(pair: Pair) -> None:
    with Client(pair.names[0]) as a, Client(pair.names[1]) as b:
        a.admin.create_topic("orders", queues=3, attributes={"retention.ms": "86400000"})
        send(a, "orders", *(f"rocketmq-{n}" for n in range(60)))
        with MetaqClient(",".join(each["metaq"] for each in pair.a.ready["brokers"])) as metaq:
            for number in range(40):
                metaq.send("orders", b"metaq-%d" % number, attribute="europe")
        a.producer().send(Message("orders", b"later", delay_level=1))
        producer = a.producer()
        producer.send(Message("orders", b"packed" * 5000, properties={"region": "eu"}))
        with mirrored(pair.folder, pair.names, "plain", topics='["orders"]') as mirror:
            wait_until(lambda: len(bodies(a, "orders")) == 102, what="the delayed one")
            mirror.wait_copied("orders")
            wait_until(lambda: len(bodies(b, "orders")) == 102, what="all copied")
            there = everything(b, "orders")
            settings = b.admin.topic_settings("orders")["shard-0"]
            assert (settings.attributes or {})["retention.ms"] == "86400000"
            for queue, messages in everything(a, "orders").items():
                copies = there[queue]
                assert [each.body for each in copies] == [each.body for each in messages]
                assert [each.tags for each in copies] == [each.tags for each in messages]
                assert [each.keys for each in copies] == [each.keys for each in messages]
                ids = [each.properties.get("UNIQ_KEY") for each in messages]
                assert [each.properties.get("UNIQ_KEY") for each in copies] == ids
                for copy, message in zip(copies, messages, strict=True):
                    assert copy.stored.born_ms == message.stored.born_ms
                    assert copy.stored.flag == message.stored.flag
                    origin = copy.properties["IMAGO_ORIGIN"].split("/")
                    assert origin[1] == "orders"
                    assert (origin[3], int(origin[4]), int(origin[5])) == (
                        queue.shard,
                        queue.queue_id,
                        message.offset,
                    )
            a.admin.alter_topic("orders", queues=4, attributes={"retention.ms": "90000000"})
            wait_until(
                lambda: (
                    b.admin.topic_settings("orders")["shard-0"].write_queue_nums == 4
                    and (b.admin.topic_settings("orders")["shard-0"].attributes or {}).get(
                        "retention.ms"
                    )
                    == "90000000"
                ),
                what="settings followed",
            )
    for_metaq_as_well(pair)


def for_metaq_as_well(pair: Pair) -> None:
    """MetaQ's clients read the copies: positions and ids are the target's own."""
    where = ",".join(each["metaq"] for each in pair.b.ready["brokers"])
    out, _ = imago("consume", "orders", "--protocol", "metaq", "--metaq", where, "--json")
    read = [json.loads(line)["body"] for line in out.splitlines()]
    assert {f"metaq-{number}" for number in range(40)} <= set(read)
    assert len(read) == 102


def test_a_group_fails_over_and_back_and_messages_do_not_go_in_circles(pair: Pair) -> None:
    groups = '["bill.*"]'
    with Client(pair.names[0]) as a, Client(pair.names[1]) as b:
        a.admin.create_topic("pay", queues=2)
        first = [f"first-{n}" for n in range(50)]
        send(a, "pay", *first)
        consumed = consume_some(a, "billing", "pay", 0.5)
        with mirrored(pair.folder, pair.names, "there", topics='["pay"]', groups=groups) as mirror:
            mirror.wait_copied("pay")
            wait_until(lambda: len(bodies(b, "pay")) == 50, what="copied")
            out, _ = imago("mirror", "failover", "--yes", "--json", "--config", str(mirror.config))
            assert json.loads(out)["lacks"] == {"pay": 0}
            assert mirror.status()["state"] == "failed-over"
            wanted = {each.encode() for each in first} - consumed
            assert left_for(b, "billing", "pay") == wanted
            # After it clients are at B.
            second = [f"second-{n}" for n in range(30)]
            send(b, "pay", *second)
            consumed |= consume_some(b, "billing", "pay", 0.8)
            back = pair.names[1], pair.names[0]
            with mirrored(pair.folder, back, "back", topics='["pay"]', groups=groups) as returning:
                wait_until(lambda: len(bodies(a, "pay")) == 80, what="copied back")
                returning.wait_copied("pay")
                wait_until(
                    lambda: (
                        left_for(a, "billing", "pay")
                        == {*map(str.encode, first + second)} - consumed
                    ),
                    what="the group is where it was at B",
                )
                imago("mirror", "failover", "--yes", "--config", str(returning.config))
                imago("mirror", "resume", "--yes", "--config", str(mirror.config))
                send(a, "pay", "third")
                wait_until(lambda: b"third" in bodies(b, "pay"), what="copying there again")
                mirror.wait_copied("pay")
        assert Counter(bodies(a, "pay")) == Counter(bodies(b, "pay"))
        assert set(Counter(bodies(a, "pay")).values()) == {1}, "each message is there once"


def test_both_ways_at_once_each_message_is_once_at_both_sides(pair: Pair) -> None:
    back = pair.names[1], pair.names[0]
    with Client(pair.names[0]) as a, Client(pair.names[1]) as b:
        for client in (a, b):
            client.admin.create_topic("both", queues=2)
        with (
            mirrored(pair.folder, pair.names, "ab", topics='["bo.*"]') as there,
            mirrored(pair.folder, back, "ba", topics='["bo.*"]') as home,
        ):
            for number in range(20):
                send(a, "both", f"a-{number}")
                send(b, "both", f"b-{number}")
            wanted = Counter(f"{side}-{n}".encode() for side in "ab" for n in range(20))
            wait_until(lambda: Counter(bodies(a, "both")) == wanted, what="all at A")
            wait_until(lambda: Counter(bodies(b, "both")) == wanted, what="all at B")
            there.wait_copied("both")
            home.wait_copied("both")
        assert Counter(bodies(a, "both")) == wanted
        assert Counter(bodies(b, "both")) == wanted


def test_small_limits_copy_the_same(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: few messages a pull and a request, one topic at a time, short notes."""
    monkeypatch.setattr(copier, "PULLED_MESSAGES_MAX", 3)
    monkeypatch.setattr(copying, "BATCH_MESSAGES_MAX", 2)
    monkeypatch.setattr(following, "ASKED_AT_ONCE_MAX", 1)
    monkeypatch.setattr(note_keeper, "_LOOKED_AT_MAX", 2)
    config, _ = write_config(pair.folder, pair.names, "small", topics='["small-.*"]')
    with Client(pair.names[0]) as a, Client(pair.names[1]) as b:
        for name in ("small-a", "small-b"):
            a.admin.create_topic(name, queues=1)
        for part in range(2):  # lives of a mirror
            for name in ("small-a", "small-b"):
                send(a, name, *(f"{name}.{part}.{number}" for number in range(20)))
            asyncio.run(run_until_copied(read_settings(config.read_text()), 40))
        for name in ("small-a", "small-b"):
            wanted = [f"{name}.{part}.{n}".encode() for part in range(2) for n in range(20)]
            assert bodies(b, name) == wanted


async def run_until_copied(settings: MirrorSettings, count: int) -> None:
    mirror, stop = RunningMirror(settings), asyncio.Event()
    running = asyncio.create_task(mirror.run(stop))
    async with asyncio.timeout(120):
        while sum(mirror.knowledge.copied_messages.values()) < count:
            await asyncio.sleep(0.1)
            assert not running.done(), running
    stop.set()
    await running


def test_wrong_configurations_and_sides_that_are_away_are_said(pair: Pair) -> None:
    same = pair.names[0], pair.names[0]
    with mirrored(pair.folder, same, "self", topics='["orders"]') as mirror:
        wait_until(lambda: "SameCluster" in mirror.reasons(), what="one cluster on both sides")
        out, told = imago("mirror", "status", "--config", str(mirror.config), code=1)
        assert "name another cluster" in told
        assert "Mirror self" in out
    nobody = f"127.0.0.1:{free_port_block(1)}"
    with mirrored(pair.folder, (nobody, pair.names[1]), "s", topics='["orders"]') as mirror:
        wait_until(lambda: "SourceAway" in mirror.reasons(), what="the source is away")
    with mirrored(pair.folder, (pair.names[0], nobody), "t", topics='["orders"]') as mirror:
        wait_until(lambda: "TargetAway" in mirror.reasons(), what="the target is away")
    with mirrored(pair.folder, pair.names, "n", topics='["nosuch", "%RETRY%x"]') as mirror:
        wait_until(
            lambda: mirror.reasons() == {"TopicMissing", "NotMirrored"}, what="an unknown topic"
        )
        with Client(pair.names[0]) as a:
            a.admin.create_topic("nosuch")
        wait_until(lambda: mirror.reasons() == {"NotMirrored"}, what="it is there now")
    config, _ = write_config(pair.folder, pair.names, "never", topics='["orders"]')
    _, told = imago("mirror", "status", "--config", str(config), code=1)
    assert "no mirror never has ever written" in told
    config, _ = write_config(pair.folder, pair.names, "wrong", topics="[]")
    _, told = imago("mirror", "run", "--config", str(config), code=2)
    assert "mirror.topics: names none" in told


def test_a_failover_without_a_mirror_that_runs_is_done_by_the_command(pair: Pair) -> None:
    with Client(pair.names[0]) as a, Client(pair.names[1]) as b:
        a.admin.create_topic("alone", queues=1)
        send(a, "alone", *(f"one-{n}" for n in range(10)))
        with mirrored(
            pair.folder, pair.names, "dead", topics='["alone"]', groups='["g"]'
        ) as mirror:
            mirror.wait_copied("alone")
            wait_until(lambda: len(bodies(b, "alone")) == 10, what="copied")
            mirror.stop()
            send(a, "alone", "late-1", "late-2")
            _, told = imago("mirror", "status", "--config", str(mirror.config), code=1)
            assert "NotRunning" in told
            out, told = imago("mirror", "failover", "--yes", "--config", str(mirror.config))
            assert "done here" in told
            row = next(line for line in out.splitlines() if "alone" in line)
            assert "2" in row, "what the target lacks"
            mirror.start()
            wait_until(lambda: mirror.status().get("state") == "failed-over", what="it stays so")
        assert len(bodies(b, "alone")) == 10
