"""`get` and `offset`: what is found, what is not, and where a client is sent instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_log.errors import CorruptLogError, DiskFullError
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place, value_body
from imago_wire.hot import metaq_whole

if TYPE_CHECKING:
    from imago_broker.app import Broker

END = 9223372036854775807


def result(code: int, text: str, opaque: int = 5) -> bytes:
    body = text.encode()
    return b"result %d %d %d\r\n%b" % (code, len(body), opaque, body)


def bodies(block: bytes) -> list[bytes]:
    """Return the bodies of the whole messages of a block, as a client cuts it."""
    found, at = [], 0
    while at + 20 <= len(block):
        size = int.from_bytes(block[at : at + 4], "big")
        if at + 20 + size > len(block):
            break
        found.append(block[at + 20 : at + 20 + size])
        at += 20 + size
    return found


async def read_on(peer: MetaqPeer, offset: int = 0, size: int = 1 << 20) -> bytes:
    """Return everything from an offset of partition 0 on, as often as one must ask for it."""
    block = b""
    while (answer := await peer.get("test", 0, offset + len(block), size)).startswith(b"value"):
        part = value_body(answer)
        block += part[: metaq_whole(part)]
    return block


async def fill(peer: MetaqPeer, count: int, size: int = 5) -> None:
    """Put messages of `size` bytes into partition 0, the number of each in front."""
    for number in range(count):
        put_place(await peer.put("test", 0, str(number).encode().ljust(size, b".")))


async def test_messages_follow_each_other_without_padding(peer: MetaqPeer) -> None:
    await fill(peer, 3)
    block = await read_on(peer)
    assert len(block) == 75
    assert bodies(block) == [b"0....", b"1....", b"2...."]
    assert await read_on(peer, 25) == block[25:]
    assert await read_on(peer, 50) == block[50:]


@pytest.mark.parametrize("size", [1, 19, 20, 25, 40, 49, 50, 74, 75, 76])
async def test_as_many_bytes_are_sent_as_were_asked_for(peer: MetaqPeer, size: int) -> None:
    await fill(peer, 3)
    whole = value_body(await peer.get("test", 0, 0))
    assert value_body(await peer.get("test", 0, 0, size)) == whole[:size]
    assert value_body(await peer.get("test", 0, 25, size)) == whole[25 : 25 + size]


async def test_nothing_new_is_not_found(peer: MetaqPeer) -> None:
    await fill(peer, 1)
    answer = await peer.get("test", 0, 25)
    assert answer == result(404, "Could not find message at position 25")


@pytest.mark.parametrize("offset", [26, 1000, END - 1])
async def test_beyond_the_end_is_not_found(peer: MetaqPeer, offset: int) -> None:
    await fill(peer, 1)
    answer = await peer.get("test", 0, offset)
    assert answer == result(404, f"Could not find message at position {offset}")


async def test_asking_for_the_end_is_told_it(peer: MetaqPeer) -> None:
    await fill(peer, 2)
    assert await peer.get("test", 0, END) == result(301, "50")


async def test_beyond_the_end_is_told_the_end_where_settings_say_so(tmp_path: Path) -> None:
    settings = ("topics.test.queues=1", "metaq.update_consumer_offsets=true")
    async with running_broker(tmp_path, *settings) as broker, metaq_peer(broker.metaq_port) as peer:
        await fill(peer, 1)
        assert await peer.get("test", 0, 26) == result(301, "25")
        assert (await peer.get("test", 0, 25)).startswith(b"result 404 ")


@pytest.mark.parametrize("offset", [-1, -(1 << 63)])
async def test_before_the_start_is_told_the_start(peer: MetaqPeer, offset: int) -> None:
    await fill(peer, 1)
    assert await peer.get("test", 0, offset) == result(301, "0")


@pytest.mark.parametrize(("offset", "border"), [(1, 25), (24, 25), (26, 50), (51, 75)])
async def test_middle_of_a_message_is_told_the_next_border(
    peer: MetaqPeer, offset: int, border: int
) -> None:
    await fill(peer, 3)
    assert await peer.get("test", 0, offset) == result(301, str(border))


@pytest.mark.parametrize(
    ("topic", "partition"),
    [("test", 3), ("test", 9), ("test", -1), ("nope", 0), ("plain", 0), ("../x", 0), ("a\0b", 0)],
)
async def test_nothing_was_ever_written_there(peer: MetaqPeer, topic: str, partition: int) -> None:
    await fill(peer, 1)
    answer = await peer.get(topic, partition, 0)
    text = f"The topic `{topic}` in partition `{partition}` is not exists"
    assert answer == result(404, text)
    assert await peer.get(topic, partition, 0, 0) == answer


@pytest.mark.parametrize("size", [0, -1, -(1 << 31)])
async def test_asking_for_no_bytes_is_a_bad_request(peer: MetaqPeer, size: int) -> None:
    await fill(peer, 1)
    answer = await peer.get("test", 0, 0, size)
    assert answer == result(400, f"Bad request,invalid max size:{size}")


async def test_closed_partition_is_not_read(broker: Broker, peer: MetaqPeer) -> None:
    await fill(peer, 1)
    broker.topics.handles.close_partitions("test", 0, 0)
    assert await peer.get("test", 0, 0) == result(403, "Partition[0-0] has been closed")
    answer = await peer.ask(b"offset test g 0 0 5\r\n")
    assert answer == result(200, "0")


async def test_message_above_the_transfer_limit_is_sent_whole_to_who_has_room(
    broker: Broker, peer: MetaqPeer
) -> None:
    limit = broker.config.metaq.transfer_bytes_max
    body = bytes(range(256)) * (limit // 256 + 1)
    put_place(await peer.put("test", 0, body))
    await fill(peer, 1)
    assert len(value_body(await peer.get("test", 0, 0, limit))) == limit
    assert bodies(value_body(await peer.get("test", 0, 0, 2 << 20))) == [body]
    assert len(value_body(await peer.get("test", 0, 0, limit + 10))) == limit + 10


async def test_answer_fills_the_transfer_limit_and_is_never_above_it_otherwise(
    broker: Broker, peer: MetaqPeer
) -> None:
    limit = broker.config.metaq.transfer_bytes_max
    body = bytes(100_000)
    await peer.send(put_frame("test", 0, body) * 20)
    for frame in await peer.frames(20):
        put_place(frame)
    end, at, found = 20 * 100_020, 0, list[bytes]()
    while at < end:
        part = value_body(await peer.get("test", 0, at, 2147483647))
        assert len(part) == min(limit, end - at)
        whole = bodies(part)
        found += whole
        at += len(whole) * 100_020
    assert found == [body] * 20


async def test_log_reads_the_same_from_every_border_before_and_after_a_restart(
    tmp_path: Path,
) -> None:
    topics = "topics.test.queues=1"
    async with running_broker(tmp_path, topics) as broker, metaq_peer(broker.metaq_port) as peer:
        for number in range(50):
            put_place(await peer.put("test", 0, bytes([number]) * (number * 37)))
        before = await read_on(peer)
    async with running_broker(tmp_path, topics) as broker, metaq_peer(broker.metaq_port) as peer:
        at = 0
        for body in bodies(before):
            assert await read_on(peer, at) == before[at:]
            at += 20 + len(body)
        _, _, position = put_place(await peer.put("test", 0, b"next"))
        assert position == len(before)


@pytest.mark.parametrize(
    ("offset", "answer"), [(-5, "0"), (0, "0"), (30, "0"), (74, "0"), (75, "75"), (END, "75")]
)
async def test_offset_tells_a_place_to_go_on_from(
    peer: MetaqPeer, offset: int, answer: str
) -> None:
    await fill(peer, 3)
    assert await peer.ask(b"offset test g 0 %d 19\r\n" % offset) == result(200, answer, 19)


async def test_offset_of_nothing_is_not_found(peer: MetaqPeer) -> None:
    text = "The topic `test` in partition `2` is not exists"
    assert await peer.ask(b"offset test g 2 0 19\r\n") == result(404, text, 19)


async def test_reader_that_follows_the_end_sees_every_message_once(broker: Broker) -> None:
    async with metaq_peer(broker.metaq_port) as writer, metaq_peer(broker.metaq_port) as reader:
        seen: list[bytes] = []
        at = 0
        for number in range(200):
            writer.writer.write(put_frame("test", 0, b"%d" % number, opaque=number))
            answer = await reader.get("test", 0, at)
            if answer.startswith(b"value"):
                block = value_body(answer)
                seen += bodies(block)
                at += len(block)
        await writer.frames(200)
        while (answer := await reader.get("test", 0, at)).startswith(b"value"):
            block = value_body(answer)
            seen += bodies(block)
            at += len(block)
    assert seen == [b"%d" % number for number in range(200)]


def is_materialised(broker: Broker) -> bool:
    config = broker.topics.get("test")
    assert config is not None
    return config.materialised


async def test_files_of_metaq_are_made_for_readers_from_behind(tmp_path: Path) -> None:
    topics = "topics.test.queues=1"
    async with running_broker(tmp_path, topics) as broker, metaq_peer(broker.metaq_port) as peer:
        await fill(peer, 3)
        block = await read_on(peer)
        assert not is_materialised(broker), "what was just written is read from memory"
    async with running_broker(tmp_path, topics) as broker, metaq_peer(broker.metaq_port) as peer:
        assert await read_on(peer) == block
        assert is_materialised(broker)
        assert await read_on(peer) == block


async def test_read_on_a_full_disk_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFullError(used_ratio=0.95, limit_ratio=0.9)

    topics = "topics.test.queues=1"
    async with running_broker(tmp_path, topics) as broker, metaq_peer(broker.metaq_port) as peer:
        await fill(peer, 1)
    async with running_broker(tmp_path, topics) as broker, metaq_peer(broker.metaq_port) as peer:
        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "set_materialised", full)
            assert bodies(await read_on(peer)) == [b"0...."]
            assert not is_materialised(broker)
        assert bodies(await read_on(peer)) == [b"0...."]
        assert is_materialised(broker)


@pytest.mark.parametrize(
    ("method", "request_line"),
    [
        ("read_positions", b"get test g 0 0 100 5\r\n"),
        ("position_range", b"offset test g 0 0 5\r\n"),
    ],
)
async def test_read_that_the_store_cannot_do_costs_no_connection(
    peer: MetaqPeer,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    request_line: bytes,
) -> None:
    def damaged(*_: object) -> None:
        raise CorruptLogError(Path("log"), 7, "damaged")

    await fill(peer, 1)
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, method, damaged)
        answer = await peer.ask(request_line)
    text = "[partition 'test-0'] failed.Detail:log at byte 7: damaged"
    assert answer.startswith(b"result 500 ")
    assert answer.endswith(text.encode())
    assert bodies(await read_on(peer)) == [b"0...."]
