"""Original RocketMQ producers: every way of sending, and what the brokers made of it."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.rocketmq import Admin, Outgoing, RocketmqClient
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop, pytest.mark.shows("send")]
COMPRESSION_BITS = {"ZLIB": 0x300, "LZ4": 0x100, "ZSTD": 0x200}
"""In the sys flag. The reading client clears the bit that says "compressed" itself."""
MESSAGE_ILLEGAL = 13
SYSTEM_ERROR, INVALID_PARAMETER = 1, 29
ALL_BYTES = bytes(range(256))


def bodies(count: int, prefix: str = "message") -> list[Outgoing]:
    return [Outgoing(body=f"{prefix} {index}".encode()) for index in range(count)]


def test_sync_sends_rotate_over_all_queues_and_offsets_grow_by_one(
    rocketmq: RocketmqClient, topic: str
) -> None:
    with rocketmq.producer() as producer:
        queues = producer.queues(topic)
        sent = producer.send(topic, bodies(3 * len(queues)))
    assert {each.status for each in sent} == {"SEND_OK"}
    assert len({each.id for each in sent}) == len({each.offset_id for each in sent}) == len(sent)
    for queue in queues:
        assert [each.offset for each in sent if each.queue == queue] == [0, 1, 2]


@pytest.mark.both_clients
def test_message_comes_back_byte_for_byte(rocketmq: RocketmqClient, topic: str) -> None:
    message = Outgoing(
        body=ALL_BYTES,
        tags="TagÄ",
        keys="key-1 key-2",
        flag=0x01020304,
        properties={"user": "value ü 漢"},
    )
    with rocketmq.producer() as producer, rocketmq.pull() as puller:
        [sent] = producer.send(topic, [message])
        back = puller.read_back(sent)
    assert (back.body, back.tags, back.keys) == (ALL_BYTES, "TagÄ", "key-1 key-2")
    assert (back.flag, back.queue, back.offset) == (0x01020304, sent.queue, sent.offset)
    assert message.properties.items() <= back.properties.items()
    assert back.properties["UNIQ_KEY"] == sent.id
    assert back.stored_ms >= back.born_ms > 0


def test_async_sends_all_succeed(rocketmq: RocketmqClient, topic: str) -> None:
    outgoing = bodies(64)
    with rocketmq.producer() as producer, rocketmq.pull() as puller:
        sent = producer.send_async(topic, outgoing)
        found = puller.drain(topic, len(outgoing))
    assert {each.status for each in sent} == {"SEND_OK"}
    assert len({(each.queue, each.offset) for each in sent}) == len(outgoing)
    assert sorted(each.body for each in found) == sorted(each.body for each in outgoing)


def test_one_way_sends_arrive(rocketmq: RocketmqClient, topic: str) -> None:
    outgoing = bodies(16)
    with rocketmq.producer() as producer, rocketmq.pull() as puller:
        producer.send_one_way(topic, outgoing)
        found = puller.drain(topic, len(outgoing))
    assert sorted(each.body for each in found) == sorted(each.body for each in outgoing)


@pytest.mark.shows("batch")
@pytest.mark.both_clients
def test_batch_is_stored_together_in_order(rocketmq: RocketmqClient, topic: str) -> None:
    outgoing = [
        Outgoing(body=f"b{index}".encode(), tags=f"T{index}", keys=f"K{index}")
        for index in range(10)
    ]
    with rocketmq.producer() as producer, rocketmq.pull() as puller:
        sent = producer.send_batch(topic, outgoing)
        found = puller.drain(topic, len(outgoing))
    assert sent.status == "SEND_OK"
    assert len(sent.id.split(",")) == len(sent.offset_id.split(",")) == len(outgoing)
    assert [(each.body, each.tags, each.keys) for each in found] == [
        (each.body, each.tags, each.keys) for each in outgoing
    ]
    assert [each.offset for each in found] == list(range(sent.offset, sent.offset + 10))
    assert [each.properties["UNIQ_KEY"] for each in found] == sent.id.split(",")


@pytest.mark.shows("send-ordered")
def test_ordered_sends_keep_equal_keys_in_one_queue(rocketmq: RocketmqClient, topic: str) -> None:
    outgoing = [
        Outgoing(body=f"{key}:{step}".encode(), keys=key)
        for step in range(5)
        for key in ("order-1", "order-2", "order-3")
    ]
    with rocketmq.producer() as producer, rocketmq.pull() as puller:
        producer.send_by_hash(topic, outgoing)
        found = puller.drain(topic, len(outgoing))
    for key in ("order-1", "order-2", "order-3"):
        of_key = [each for each in found if each.keys == key]
        assert len({each.queue for each in of_key}) == 1
        assert [each.body for each in of_key] == [f"{key}:{n}".encode() for n in range(5)]


@pytest.mark.shows("create")
def test_first_send_creates_the_topic_from_the_template(
    rocketmq: RocketmqClient, admin: Admin, unique: Callable[[str], str]
) -> None:
    name = unique("auto")
    with rocketmq.producer() as producer, rocketmq.pull() as puller:
        [sent] = producer.send(name, [Outgoing(body=b"first")])
        wait_until(
            lambda: sent.queue.broker in producer_brokers(admin, name),
            seconds_max=60,
            what="the new topic has a route",
        )
        route = admin.call("route", topic=name)
        back = puller.read_back(sent)
    assert sent.status == "SEND_OK"
    assert back.body == b"first"
    assert route["queues"][sent.queue.broker] == {
        "read_queues": 4,
        "write_queues": 4,
        "perm": 6,
    }


def producer_brokers(admin: Admin, topic: str) -> set[str]:
    try:
        return set(admin.call("route", topic=topic)["queues"])
    except DriverError:
        return set()


@pytest.mark.shows("compressed")
@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
def test_compressed_body_is_stored_as_sent_and_inflated_by_the_reader(
    rocketmq: RocketmqClient, topic: str, compression: str
) -> None:
    body = b"compress me " * 2000
    with (
        rocketmq.producer(compression=compression) as producer,
        rocketmq.pull() as puller,
    ):
        [sent] = producer.send(topic, [Outgoing(body=body, tags="big")])
        back = puller.read_back(sent, expression="big")
    assert zlib.crc32(back.body) == zlib.crc32(body)
    assert back.sys_flag & 0x700 == COMPRESSION_BITS[compression]


def test_body_over_the_limit_is_refused_and_the_connection_stays(
    rocketmq: RocketmqClient, topic: str
) -> None:
    with rocketmq.producer(compress_over=1 << 30, size_max=1 << 23, retries=0) as producer:
        with pytest.raises(DriverError) as caught:
            producer.send(topic, [Outgoing(body=b"\xaa" * (5 << 20))])
        assert caught.value.code == MESSAGE_ILLEGAL
        [sent] = producer.send(topic, [Outgoing(body=b"small")])
    assert sent.status == "SEND_OK"


def test_queue_that_does_not_exist_is_refused(rocketmq: RocketmqClient, topic: str) -> None:
    with rocketmq.producer(retries=0) as producer:
        [queue, *_] = producer.queues(topic)
        wrong = type(queue)(queue.topic, queue.broker, 99)
        with pytest.raises(DriverError) as caught:
            producer.send_to_queue(wrong, [Outgoing(body=b"nowhere")])
    assert caught.value.code in {SYSTEM_ERROR, INVALID_PARAMETER}
