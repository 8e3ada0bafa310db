"""`stats`, `version` and the commands that are not served."""

from __future__ import annotations

import asyncio
import os
import re
import zlib
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.metaq import stats
from imago_broker.processors.metaq.realtime import RESET_MS, TOPICS_MAX, RealTimeStatistics
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker


BROKER_KEYS = (
    "pid", "broker_id", "port", "uptime", "version", "slave", "curr_connections", "threads",
    "cmd_put", "cmd_get", "cmd_offset", "tx_begin", "tx_xa_begin", "tx_commit", "tx_rollback",
    "get_miss", "put_failed", "total_messages", "topics", "config_checksum",
)  # fmt: skip


def lines(frame: bytes) -> list[str]:
    """Return the lines between STATS and END."""
    head, _, body = frame.partition(b"\r\n")
    assert head.startswith(b"result 200 ")
    text = body.decode()
    assert text.startswith("STATS\r\n")
    assert text.endswith("END\r\n")
    return text.split("\r\n")[1:-2]


async def test_broker_s_own_lines_come_in_the_original_s_order(
    broker: Broker, peer: MetaqPeer
) -> None:
    await peer.put("test", 0, b"hello")
    await peer.put("test", 9, b"hello")
    await peer.get("test", 0, 0)
    await peer.get("test", 0, 25)
    await peer.get("test", 0, -1)
    await peer.ask(b"offset test g 0 0 5\r\n")
    answer = await peer.ask(b"stats  -1000\r\n")
    assert answer.split(b"\r\n")[0].split()[3] == b"-1000"
    shown = [line.split(" ", 1) for line in lines(answer)]
    config = await peer.ask(b"stats config 7\r\n")
    checksum = zlib.crc32(config.partition(b"\r\n")[2])
    known = {key: value for key, value in shown if key not in ("uptime", "threads")}
    assert known == {
        "pid": str(os.getpid()),
        "broker_id": "0",
        "port": str(broker.metaq_port),
        "version": "1.4.6.2",
        "slave": "false",
        "curr_connections": "1",
        "cmd_put": "2",
        "cmd_get": "3",
        "cmd_offset": "2",
        "tx_begin": "0",
        "tx_xa_begin": "0",
        "tx_commit": "0",
        "tx_rollback": "0",
        "get_miss": "2",
        "put_failed": "1",
        "total_messages": "1",
        "topics": "1",
        "config_checksum": str(checksum),
    }
    assert [key for key, _ in shown] == list(BROKER_KEYS)


async def test_closed_puts_are_not_counted_as_failed(broker: Broker, peer: MetaqPeer) -> None:
    broker.topics.handles.close_partitions("test", 0, 0)
    await peer.put("test", 0, b"hello")
    shown = dict(line.split(" ", 1) for line in lines(await peer.ask(b"stats\r\n")))
    assert (shown["cmd_put"], shown["put_failed"]) == ("1", "0")


async def test_item_without_opaque_is_answered_with_the_default(peer: MetaqPeer) -> None:
    answer = await peer.ask(b"stats 5\r\n")
    assert answer.split(b"\r\n")[0].split()[3] == b"2147483647"
    assert lines(answer)[0] == "5"


async def test_topics_with_and_without_data(peer: MetaqPeer) -> None:
    assert lines(await peer.ask(b"stats topics 1\r\n")) == ["test *Empty*"]
    await peer.put("test", 1, b"hello")
    await peer.put("test", 2, b"hello")
    await peer.put("test", 2, b"hello")
    assert lines(await peer.ask(b"stats topics 1\r\n")) == [
        "test partitions 2 message_count 3 message_bytes 75 accept_publish true"
        " accept_subscribe true"
    ]


async def test_offsets_have_seven_words_a_line(peer: MetaqPeer) -> None:
    await peer.put("test", 0, b"hello")
    await peer.put("test", 2, b"")
    shown = lines(await peer.ask(b"stats offsets 1\r\n"))
    assert shown == [
        "test part 0 min_offset 0 max_offset 25",
        "test part 2 min_offset 0 max_offset 20",
    ]


async def test_help_is_the_original_s(peer: MetaqPeer) -> None:
    assert lines(await peer.ask(b"stats help 1\r\n")) == [
        "*EMPTY* Returns broker info.",
        "help Returns help menu.",
        "topics Returns topics statistics detail info.",
        "offsets Returns partitions detail info.",
        "realtime Returns realtime statistics detail info.",
        "config Returns broker's config file content.",
    ]


async def test_realtime_says_null_for_what_was_never_seen(peer: MetaqPeer) -> None:
    # Captured from the original: six lines, 150 bytes.
    answer = await peer.ask(b"stats realtime 13\r\n")
    assert answer.startswith(b"result 200 150 13\r\n")
    assert lines(answer) == [
        f"realtime_{name} null"
        for name in ("put", "get", "offset", "get_miss", "put_failed", "message_size")
    ]


async def test_one_topic_without_statistics_has_the_captured_form(peer: MetaqPeer) -> None:
    for partition in range(4):
        await peer.put("test", partition, b"hello")
    assert lines(await peer.ask(b"stats test 12\r\n")) == [
        "test",
        "resultCode 0",
        "partitions 4",
        "message_count 4",
        "bytes 100",
        "topic_realtime_put null",
        "topic_realtime_get null",
        "topic_realtime_offset null",
        "topic_realtime_get_miss null",
        "topic_realtime_put_failed null",
        "topic_realtime_message_size null",
    ]


@pytest.mark.parametrize(("topic", "code"), [("test", 2), ("nope", 1), ("plain", 1)])
async def test_topic_without_data_has_its_result_code(
    peer: MetaqPeer, topic: str, code: int
) -> None:
    shown = lines(await peer.ask(f"stats {topic} 1\r\n".encode()))
    assert shown[:5] == [topic, f"resultCode {code}", "partitions 0", "message_count 0", "bytes 0"]


async def test_counted_topics_are_counted(tmp_path: Path) -> None:
    settings = ("topics.a.metaq_stat=true", "topics.b.queues=1")
    async with running_broker(tmp_path, *settings) as broker, metaq_peer(broker.metaq_port) as peer:
        for topic in ("a", "b"):
            await peer.put(topic, 0, b"hello")
            await peer.put(topic, 99, b"hello")
            await peer.get(topic, 0, 25)
        await peer.put("a", 0, b"hello!!")
        shown = lines(await peer.ask(b"stats a 1\r\n"))
        assert re.fullmatch(
            r"topic_realtime_put Count=2,Value=2,Value/Count=1,Count/Duration=\S+,Duration=\d+",
            shown[5],
        )
        assert shown[6].startswith("topic_realtime_get Count=1,Value=1,")
        assert shown[8].startswith("topic_realtime_get_miss Count=1,")
        assert shown[9].startswith("topic_realtime_put_failed Count=1,")
        assert shown[10].startswith("topic_realtime_message_size Count=2,Value=12,Value/Count=6,")
        uncounted = lines(await peer.ask(b"stats b 1\r\n"))
        assert uncounted[5] == "topic_realtime_put Invalid keyTwo:b"
        assert lines(await peer.ask(b"stats reset 1\r\n")) == ["reset ok"]
        assert lines(await peer.ask(b"stats realtime 1\r\n"))[0] == "realtime_put null"


async def test_config_is_raw(broker: Broker, peer: MetaqPeer) -> None:
    answer = await peer.ask(b"stats config 5\r\n")
    body = answer.partition(b"\r\n")[2]
    assert body == broker.config_file()
    assert b"[system]\nbrokerId=0\n" in body
    again = await peer.ask(b"stats config 5\r\nstats config 5\r\n")
    assert again == answer
    assert await peer.frame() == answer


@pytest.mark.parametrize(
    ("request_line", "opaque"),
    [
        (b"version 7\r\n", 7),
        (b"version\r\n", 2147483647),
        (b"version -2147483645\r\n", -2147483645),
        (b"vfoo 5\r\n", 5),
        (b"version 5 surplus words\r\n", 5),
    ],
)
async def test_version_is_the_heartbeat(peer: MetaqPeer, request_line: bytes, opaque: int) -> None:
    assert await peer.ask(request_line) == b"result 200 7 %d\r\n1.4.6.2" % opaque


async def test_sync_has_no_handler(peer: MetaqPeer) -> None:
    # The bytes that the original sends.
    text = (
        b"\xe6\x9c\xaa\xe6\xb3\xa8\xe5\x86\x8c\xe8\xaf\xb7\xe6\xb1\x82\xe5\xa4\x84\xe7\x90\x86"
        b"\xe5\x99\xa8\xef\xbc\x8c\xe8\xaf\xb7\xe6\xb1\x82\xe5\xa4\x84\xe7\x90\x86\xe5\x99\xa8"
        b"\xe7\xb1\xbb\xe4\xb8\xbacom.taobao.metamorphosis.network.SyncCommand"
    )
    answer = await peer.ask(b"sync test 1 5 0 9999 907060870 44\r\nhello")
    assert answer == b"result 503 92 44\r\n" + text


async def test_the_end_of_a_transaction_is_not_answered(peer: MetaqPeer) -> None:
    answer = await peer.ask(b"transaction TX:s1:1 s1 END 30\r\nversion 1\r\n")
    assert answer == b"result 200 7 1\r\n1.4.6.2"


async def test_answers_to_nothing_are_ignored(peer: MetaqPeer) -> None:
    answer = await peer.ask(b"result 200 2 9\r\nokvalue 3 9\r\nabcversion 1\r\n")
    assert answer == b"result 200 7 1\r\n1.4.6.2"


def test_realtime_numbers_have_at_most_two_decimals() -> None:
    counters = RealTimeStatistics(0)
    counters.add("message_size", "t", 17, 80)
    text = counters.of_topic("message_size", "t", 25_000)
    assert text == "Count=17,Value=80,Value/Count=4.71,Count/Duration=0.68,Duration=25"
    assert counters.of_command("message_size", 0).endswith("Count/Duration=invalid,Duration=0")


def test_realtime_counters_reset_themselves() -> None:
    counters = RealTimeStatistics(0)
    counters.add("put", "t")
    assert counters.of_command("put", RESET_MS - 1) != "null"
    assert counters.of_command("put", RESET_MS) == "null"


def test_realtime_counters_are_bounded_in_topics() -> None:
    counters = RealTimeStatistics(0)
    for number in range(TOPICS_MAX + 5):
        counters.add("get", f"t{number}")
    assert counters.of_command("get", 1).startswith(f"Count={TOPICS_MAX + 5},")
    assert counters.of_topic("get", f"t{TOPICS_MAX + 1}", 1) == f"Invalid keyTwo:t{TOPICS_MAX + 1}"


@pytest.mark.parametrize("item", ["", "topics", "offsets"])
async def test_many_topics_are_shown_in_pieces(
    broker: Broker, peer: MetaqPeer, monkeypatch: pytest.MonkeyPatch, item: str
) -> None:
    """Others are served meanwhile; what the connection asks next waits."""
    monkeypatch.setattr(stats, "PIECE", 4)
    for number in range(20):
        broker.topics.create_or_update(TopicConfig(name=f"many-{number}"))
        await peer.put(f"many-{number}", 0, b"hello")
    whole = lines(await peer.ask(f"stats {item}\r\n".encode()))
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    position_range, at = broker.store.position_range, []

    def position_range_of(topic: str, number: int) -> tuple[int, int]:
        at.append(turns)
        return position_range(topic, number)

    monkeypatch.setattr(broker.store, "position_range", position_range_of)
    asyncio.get_running_loop().call_soon(turn)
    peer.writer.write(f"stats {item} 7\r\nversion 8\r\n".encode())
    first, second = await peer.frames(2)
    volatile = ("uptime", "threads", "cmd_")
    assert [line for line in lines(first) if not line.startswith(volatile)] == [
        line for line in whole if not line.startswith(volatile)
    ]
    assert second.split(b"\r\n")[0].endswith(b" 8")
    assert len(set(at)) >= 4, "in one turn of the loop"


async def test_puts_behind_long_statistics_wait_for_them(
    broker: Broker, peer: MetaqPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "PIECE", 4)
    for number in range(20):
        broker.topics.create_or_update(TopicConfig(name=f"many-{number}"))
    peer.writer.write(b"stats topics 7\r\nput test 0 5 0 0 8\r\nhelloversion 9\r\n")
    heads = [frame.split(b"\r\n")[0].split() for frame in await peer.frames(3)]
    assert [head[3] for head in heads] == [b"7", b"8", b"9"]
