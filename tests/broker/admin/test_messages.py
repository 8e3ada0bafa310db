"""Messages are shown without more being read than is shown, whatever number of queues they are in.

`log_reads` counts what comes from the log.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.resources import messages
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.records.record import StoredMessage, decode_record
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_log.results import ReadResult
    from imago_testing.peers.admin import Admin

QUEUES = 12
PATH = "/admin/v1/messages?topic=orders"
BODY = b"x" * 1000


@pytest.fixture
async def sent(broker: Broker) -> list[tuple[int, str]]:
    """Send three messages to each queue; return of each its queue and text, oldest first."""
    config = TopicConfig(name="orders", read_queues=QUEUES, write_queues=QUEUES)
    broker.topics.create_or_update(config)
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    made = []
    for turn in range(3):
        for queue in reversed(range(QUEUES)):
            text = f"{turn}-{queue:02d}-".encode() + BODY
            answer = await peer.put("orders", text, queue_id=queue, properties="KEYS\x01k\x02")
            assert answer.code == ResponseCode.SUCCESS
            made.append((queue, text.decode()))
        await asyncio.sleep(0.005)  # the next ones are of another millisecond
    await peer.close()
    return made


@pytest.fixture
def log_reads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How large each read of messages was."""
    reads: list[int] = []
    read = broker.store.read

    def counted(*args: Any, **options: Any) -> ReadResult:
        found = read(*args, **options)
        reads.append(len(found.body))
        return found

    monkeypatch.setattr(broker.store, "read", counted)
    return reads


async def found_by(admin: Admin, query: str) -> list[str]:
    status, found = await admin.call("GET", PATH + query)
    assert status == 200, found
    assert found["next"] is None
    return [item["text"] for item in found["items"]]


async def test_of_all_queues_the_oldest_are_read_and_no_more(
    admin: Admin, sent: list[tuple[int, str]], log_reads: list[int]
) -> None:
    for limit in (1, 5, QUEUES, QUEUES + 7):
        log_reads.clear()
        texts = await found_by(admin, f"&limit={limit}")
        assert len(log_reads) == len(texts) == limit
        turns = [text.partition("-")[0] for text in texts]
        assert turns == ["0"] * min(limit, QUEUES) + ["1"] * (limit - QUEUES)
    assert sorted(await found_by(admin, "&limit=200")) == sorted(text for _, text in sent)


async def test_the_newest_of_all_queues_are_read_and_no_more(
    admin: Admin, sent: list[tuple[int, str]], log_reads: list[int]
) -> None:
    found = await found_by(admin, "&newest=true&limit=5")
    assert sorted(found) == sorted(text for _, text in sent[-QUEUES:] if text in found)
    assert len(found) == len(log_reads) == 5
    assert (
        await found_by(admin, "&newest=true&queue=3&limit=2")
        == [text for queue, text in sent if queue == 3][1:]
    )
    assert len(await found_by(admin, "&newest=true&limit=200")) == len(sent)


async def test_messages_of_one_millisecond_are_in_the_order_of_the_log(
    admin: Admin, sent: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(*args: Any, **how: Any) -> StoredMessage:
        return replace(decode_record(*args, **how), store_ms=1)

    monkeypatch.setattr(messages, "decode_record", at_once)
    assert await found_by(admin, "&newest=true&limit=200") == [text for _, text in sent]


async def test_the_newest_up_to_a_time(admin: Admin, sent: list[tuple[int, str]]) -> None:
    _, body = await admin.call("GET", f"{PATH}&newest=true&queue=3")
    first, second, third = body["items"]
    assert first["storeTime"] < second["storeTime"] < third["storeTime"]
    found = await found_by(admin, f"&newest=true&queue=3&to={second['storeTime']}")
    assert found == [text for queue, text in sent if queue == 3][:2]
    assert await found_by(admin, f"&newest=true&to={first['storeTime'] - 60_000}") == []


async def test_the_newest_end_where_a_queue_is_damaged(
    broker: Broker,
    admin: Admin,
    sent: list[tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = broker.store.read

    def around(topic: str, queue: int, offset: int, **how: Any) -> ReadResult:
        return read(topic, queue, 2 if offset == 1 else offset, **how)

    monkeypatch.setattr(broker.store, "read", around)
    assert (
        await found_by(admin, "&newest=true&queue=3")
        == [text for queue, text in sent if queue == 3][2:]
    )


async def test_the_newest_are_read_within_so_many_bytes(
    admin: Admin, sent: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "READ_BYTES_MAX", 3 * len(BODY))
    assert 1 <= len(await found_by(admin, "&newest=true")) < 4 < len(sent)


async def test_of_one_queue_they_are_read_from_an_offset_on(
    admin: Admin, sent: list[tuple[int, str]]
) -> None:
    of_queue = [text for queue, text in sent if queue == 7]
    assert await found_by(admin, "&queue=7") == of_queue
    assert await found_by(admin, "&queue=7&offset=1&limit=1") == of_queue[1:2]
    assert await found_by(admin, "&queue=7&offset=3") == []


async def test_times_bound_what_is_read(
    admin: Admin, sent: list[tuple[int, str]], log_reads: list[int]
) -> None:
    assert len(sent) == 3 * QUEUES
    _, found = await admin.call("GET", f"{PATH}&limit=200")
    times = [item["storeTime"] for item in found["items"]]
    log_reads.clear()
    texts = await found_by(admin, f"&from={times[QUEUES]}&to={times[2 * QUEUES - 1]}&limit=200")
    assert len(texts) == len(log_reads) == QUEUES
    assert all(text.startswith("1-") for text in texts)


@pytest.mark.parametrize("way", ["", "&queue=3", "&key=k"])
async def test_one_call_reads_so_many_bytes(
    admin: Admin,
    sent: list[tuple[int, str]],
    log_reads: list[int],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """Whatever queues they are of: but one message is always shown."""
    size = len(admin.broker.store.read("orders", 3, 0, messages_max=1, bytes_max=1).body)
    for bytes_max, count in ((1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size - 1, 2)):
        monkeypatch.setattr(messages, "READ_BYTES_MAX", bytes_max)
        log_reads.clear()
        texts = await found_by(admin, f"{way}&limit=200")
        assert len(texts) == count
        assert sum(log_reads) in {0, count * size}, "by key nothing is read of queues"
        if way == "&key=k":
            assert texts == [text for _, text in sent][-count:], "the newest"


async def test_others_have_their_turn_between_queues(
    admin: Admin, sent: list[tuple[int, str]]
) -> None:
    assert sent
    turns = 0

    async def counting() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counter = asyncio.create_task(counting())
    found = await messages.by_place(admin.broker.admin_services(), "orders", {}, 5)
    counter.cancel()
    assert len(found) == 5
    assert turns > QUEUES, "after each queue, and after each message"
