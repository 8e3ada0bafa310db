"""What a group gave up goes back to it alone; a group is moved in single queues and by messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.clusters.admin_http import ask
from imago_client import ConsumerConfig, Message, MessageQueue, StartFrom
from imago_client.blocking import Client
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.tasks.conftest import Shell, TwoShards

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
SECONDS_MAX = 60
NO_GROUPS = {"rocketmq.auto_create_group": False}


@pytest.fixture(scope="module")
def client(two_shards: TwoShards) -> Iterator[Client]:
    with Client(two_shards.running.ready["namesrv"]) as client:
        yield client


@pytest.fixture(scope="module")
def given_up(client: Client) -> list[str]:
    """Two messages of which one group wants nothing, on each shard one; their ids."""
    client.admin.create_topic("bills", queues=1)
    producer = client.producer()
    ids = [
        producer.send(
            Message(
                "bills", b"bill %d" % n, tags="big", keys=(f"bill-{n}",), properties={"n": "1"}
            ),
            queue=MessageQueue("bills", f"shard-{n}", 0),
        ).message_id
        for n in range(2)
    ]
    client.admin.reset_group("reader", "bills", "latest")
    config = ConsumerConfig(group="payer", start_from=StartFrom.EARLIEST, reconsume_times_max=0)
    with client.group_consumer(config, ["bills"]) as consumer:
        refused: set[str] = set()

        def all_refused() -> bool:
            for message in consumer.poll(0.5):
                consumer.retry(message)
                refused.add(message.message_id)
            consumer.commit()
            return refused == set(ids)

        wait_until(all_refused, seconds_max=SECONDS_MAX, what="all are refused")
        reader, retry = client.pull_consumer("payer"), "%RETRY%payer"

        def reads_what_comes_back() -> bool:
            consumer.poll(0.5)
            consumer.commit()
            known = client.admin.topic_bounds(retry) if retry in client.admin.topics() else ()
            return any(reader.committed(one.queue) is not None for one in known)

        wait_until(reads_what_comes_back, seconds_max=SECONDS_MAX, what="its retries are read")
    return ids


def taken(client: Client, group: str, count: int) -> list[Any]:
    """Join the group until it has so many messages; return what it got, tried how often."""
    found: list[Any] = []

    def enough() -> bool:
        found.extend(consumer.poll(0.5))
        consumer.commit()
        return len(found) >= count

    config = ConsumerConfig(group=group, start_from=StartFrom.EARLIEST)
    with client.group_consumer(config, ["bills"]) as consumer:
        wait_until(enough, seconds_max=SECONDS_MAX, what=f"{group} has {count} messages")
    return found


def test_dead_letters_are_listed_shown_and_go_back_once(
    shell: Shell, client: Client, given_up: list[str]
) -> None:
    (listed,) = shell.json("dlq", "list")
    assert (listed["group"], listed["messages"], listed["waiting"]) == ("payer", 2, 2)
    shown = shell.json("dlq", "show", "payer")
    assert {one["uniqueId"]: one["originTopic"] for one in shown} == dict.fromkeys(
        given_up, "bills"
    )
    assert sorted(one["body"] for one in shown) == ["bill 0", "bill 1"]
    assert "bills: given up after it was tried 1 time\n" in shell.done("dlq", "show", "payer")
    dry = shell.json("dlq", "replay", "payer", "--dry-run")
    assert dry == {"group": "payer", "sent": 0, "left": 2}
    first = shell.json("dlq", "replay", "payer", "--count", "1", "--yes")
    assert first == {"group": "payer", "sent": 1, "left": 1}
    second = shell.json("dlq", "replay", "payer", "--rate", "100", "--yes")
    assert second == {"group": "payer", "sent": 1, "left": 0}
    assert shell.json("dlq", "replay", "payer") == {"group": "payer", "sent": 0, "left": 0}
    assert shell.json("dlq", "list")[0]["waiting"] == 0
    back = taken(client, "payer", 2)
    assert sorted(one.message_id for one in back) == sorted(given_up)
    assert {(one.topic, one.tags, one.user_properties["n"]) for one in back} == {
        ("bills", "big", "1")
    }
    assert sorted(one.keys for one in back) == [("bill-0",), ("bill-1",)]
    assert {one.reconsume_times for one in back} == {0}
    others = client.admin.describe_group("reader").progress
    assert sum(one.lag for one in others) == 0, "no other group gets them again"


def test_dead_letters_go_to_their_topics_and_all_their_groups(
    shell: Shell, client: Client, given_up: list[str]
) -> None:
    before = {one.queue: one.max_offset for one in client.admin.topic_bounds("bills")}
    sent = shell.json("dlq", "replay", "payer", "--all", "--to-topics", "--yes")
    assert sent == {"group": "payer", "sent": 2, "left": 0}
    reader = client.pull_consumer("IMAGO_CLI")
    found: list[Any] = []
    for queue, offset in before.items():
        found += reader.pull(queue, offset).messages()
    assert sorted(one.body for one in found) == [b"bill 0", b"bill 1"]
    assert {(one.topic, one.tags, one.user_properties["n"]) for one in found} == {
        ("bills", "big", "1")
    }
    assert given_up


def test_brokers_that_make_no_groups_show_dead_letters_too(
    shell: Shell, two_shards: TwoShards, client: Client, given_up: list[str]
) -> None:
    for broker in two_shards.brokers:
        ask(broker["admin"], "/admin/v1/config", NO_GROUPS, method="PATCH")
    client.admin.delete_group("IMAGO_DLQ")
    assert len(shell.json("dlq", "show", "payer")) == len(given_up)
    assert "IMAGO_DLQ" in client.admin.groups()
    for broker in two_shards.brokers:
        whole = dict.fromkeys(NO_GROUPS, True)
        ask(broker["admin"], "/admin/v1/config", whole, method="PATCH")


def test_a_group_without_dead_letters_and_one_that_is_not_there_are_told_apart(
    shell: Shell, given_up: list[str]
) -> None:
    assert given_up
    assert shell.json("dlq", "replay", "reader") == {"group": "reader", "sent": 0, "left": 0}
    ended = shell.run("dlq", "show", "reader")
    told = "nothing that group reader gave up is here; --all shows what went back already\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", told)
    ended = shell.run("dlq", "show", "payers")
    assert (ended.returncode, "did you mean payer?" in ended.stderr) == (1, True)


def test_a_message_is_sent_once_more_to_its_topic_or_to_one_group(
    shell: Shell, client: Client, given_up: list[str]
) -> None:
    sent = shell.json("message", "resend", given_up[0], "--yes")
    assert (sent["topic"], sent["id"] != given_up[0]) == ("bills", True)
    again = shell.json("message", "get", sent["id"])
    assert (again["text"], again["tags"], again["keys"]) == ("bill 0", "big", "bill-0")
    client.admin.reset_group("late", "bills", "latest")
    ended = shell.run("message", "resend", given_up[1], "--group", "late", "--yes")
    assert (ended.returncode, "has had no member yet" in ended.stderr) == (1, True)
    client.admin.create_topic("%RETRY%late", queues=1)  # as a member's first heart beat does
    ended = shell.run("message", "resend", given_up[1], "--group", "late", "--yes")
    assert (ended.returncode, "nobody is seen to read" in ended.stderr) == (1, True)
    config = ConsumerConfig(group="late", start_from=StartFrom.LATEST)
    with client.group_consumer(config, ["bills"]) as consumer:
        found = list(consumer.poll(0.1))  # it is a member from then on
        shell.done("message", "resend", given_up[1], "--group", "late", "--yes")

        def has_come() -> bool:
            found.extend(consumer.poll(0.5))
            return bool(found)

        wait_until(has_come, seconds_max=SECONDS_MAX, what="the group has it once more")
    (only,) = found
    assert (only.message_id, only.topic) == (given_up[1], "bills")
    ended = shell.run("message", "resend", given_up[0], "--to", "bils", "--yes")
    assert (ended.returncode, "did you mean bills?" in ended.stderr) == (1, True)


def places(moved: Any) -> dict[str, int]:
    return {f"{one['shard']}/{one['queue']}": one["offset"] for one in moved["queues"]}


def test_a_group_is_moved_by_messages_to_an_offset_and_to_another_group(
    shell: Shell, client: Client
) -> None:
    client.admin.create_topic("moves", queues=2)
    producer = client.producer()
    queues = [MessageQueue("moves", f"shard-{s}", q) for s in range(2) for q in range(2)]
    for queue in queues:
        for n in range(5):
            producer.send(Message("moves", b"%d" % n), queue=queue)

    def reset(*words: object) -> dict[str, int]:
        return places(shell.json("group", "reset", "mover", "moves", *words, "--yes"))

    names = [f"shard-{s}/{q}" for s in range(2) for q in range(2)]
    assert reset("--to", "latest", "--create") == dict.fromkeys(names, 5)
    assert reset("--by", "-2") == dict.fromkeys(names, 3)
    assert reset("--by", "100", "--queue", "shard-1/0") == {"shard-1/0": 5}
    assert reset("--to", "offset:1", "--queue", "0/1") == {"shard-0/1": 1}
    assert reset("--to", "-4", "--queue", "0/0") == {"shard-0/0": 1}
    now = {"shard-0/0": 1, "shard-0/1": 1, "shard-1/0": 5, "shard-1/1": 3}
    progress = client.admin.describe_group("mover").progress
    assert {f"{p.queue.shard}/{p.queue.queue_id}": p.committed for p in progress} == now
    client.admin.reset_group("second", "moves", "earliest")
    copied = shell.json("group", "reset", "second", "moves", "--to-group", "mover", "--yes")
    assert places(copied) == now
    for wrong, code in ((("--to", "offset:6"), 1), (("--to", "earliest", "--by", "1"), 2), ((), 2)):
        ended = shell.run("group", "reset", "mover", "moves", *wrong, "--yes")
        assert ended.returncode == code, ended


def test_members_go_on_where_a_single_queue_is_moved_to(shell: Shell, client: Client) -> None:
    client.admin.create_topic("steady", queues=1)
    place = MessageQueue("steady", "shard-0", 0)
    producer = client.producer()
    for n in range(4):
        producer.send(Message("steady", b"%d" % n), queue=place)
    seen: list[bytes] = []
    config = ConsumerConfig(group="steady-g", start_from=StartFrom.EARLIEST)
    with client.group_consumer(config, ["steady"]) as consumer:

        def has(count: int) -> bool:
            seen.extend(one.body for one in consumer.poll(0.5))
            consumer.commit()
            return len(seen) >= count

        wait_until(lambda: has(4), seconds_max=SECONDS_MAX, what="all are read")
        shell.done("group", "reset", "steady-g", "steady", "--by", "-2", "--queue", "0/0", "--yes")
        wait_until(lambda: has(6), seconds_max=SECONDS_MAX, what="two are read again")
    assert seen == [b"0", b"1", b"2", b"3", b"2", b"3"]
