"""`put`: every form, every check in the original's order, every answer byte for byte."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.config import load
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.metaq import puts
from imago_broker.server.text.text_session import TextSession
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.topics.topic_handles import TopicHandles
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place, value_body
from imago_wire.errors import LimitExceededError
from imago_wire.hot import metaq_entry, take_puts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_wire.hot import QueueTail
    from imago_wire.records.record import Entry, Placed

HELLO_CHECKSUM = 907060870


def url(broker: Broker) -> str:
    return f"meta://127.0.0.1:{broker.metaq_port}"


def failed(broker: Broker, topic: str, partition: int, detail: str = "") -> bytes:
    text = f"Put message to [broker '{url(broker)}'] [partition '{topic}-{partition}'] failed."
    return (f"{text}Detail:{detail}" if detail else text).encode()


def result(code: int, body: bytes, opaque: int) -> bytes:
    return b"result %d %d %d\r\n%b" % (code, len(body), opaque, body)


async def test_put_is_answered_with_id_partition_and_position(peer: MetaqPeer) -> None:
    first = await peer.ask(b"put test 1 5 0 907060870 -2147483648\r\nhello")
    second = await peer.ask(b"put test 1 5 0 907060870 -2147483647\r\nhello")
    assert first.split(b"\r\n")[0].split()[3] == b"-2147483648"
    (id_1, _, position_1), (id_2, partition, position_2) = put_place(first), put_place(second)
    assert (partition, position_1, position_2) == (1, 0, 25)
    assert 0 < id_1 < id_2


@pytest.mark.parametrize(
    "request_line",
    [
        b"put test 0 5 0 17\r\n",  # up to 1.4.3: no checksum
        b"put test 0 5 0 907060870 17\r\n",
        b"put test 0 5 0 -1 17\r\n",  # a checksum of -1 is none
    ],
)
async def test_every_form_of_a_plain_put_is_stored(peer: MetaqPeer, request_line: bytes) -> None:
    message_id, _, _ = put_place(await peer.ask(request_line + b"hello"))
    stored = value_body(await peer.get("test", 0, 0))
    head = (5).to_bytes(4, "big") + HELLO_CHECKSUM.to_bytes(4, "big")
    assert stored == head + message_id.to_bytes(8, "big") + bytes(4) + b"hello"


async def test_empty_message_is_stored(peer: MetaqPeer) -> None:
    message_id, _, position = put_place(await peer.ask(b"put test 0 0 0 0 8\r\n"))
    assert position == 0
    stored = value_body(await peer.get("test", 0, 0))
    assert stored == bytes(8) + message_id.to_bytes(8, "big") + bytes(4)


@pytest.mark.parametrize(
    ("body", "flag"),
    [
        (b"\0\0\0\x05colorhello", 1),
        (b"\0\0\0\0hello", 1),  # an empty attribute
        ("\0\0\0\x0a颜色=红价格".encode(), 1),
        (b"\0\0\xff\xffhello", 0),  # no attribute: the flag says so
        (b"plain", 4),  # unknown flag bits are kept
    ],
)
async def test_body_comes_back_as_it_was_sent(peer: MetaqPeer, body: bytes, flag: int) -> None:
    message_id, _, _ = put_place(await peer.put("test", 0, body, flag=flag))
    stored = value_body(await peer.get("test", 0, 0))
    assert stored[:4] == len(body).to_bytes(4, "big")
    assert stored[8:20] == message_id.to_bytes(8, "big") + flag.to_bytes(4, "big")
    assert stored[20:] == body


async def test_poisonous_attribute_does_not_reach_consumers_as_one(peer: MetaqPeer) -> None:
    body = b"\x7f\xff\xff\xffhello"
    put_place(await peer.put("test", 0, body, flag=1))
    stored = value_body(await peer.get("test", 0, 0))
    assert stored[16:20] == bytes(4)
    assert stored[20:] == body


async def test_wrong_checksum_is_refused(broker: Broker, peer: MetaqPeer) -> None:
    answer = await peer.ask(b"put test 0 5 0 1 3\r\nhello")
    # The original's own spelling, kept from the spelling checker.
    detail = "Checksum failure,message may be corrupted when transfer" + "ing on networking."
    assert answer == result(500, failed(broker, "test", 0, detail), 3)


async def test_unknown_topic_is_refused(broker: Broker, peer: MetaqPeer) -> None:
    answer = await peer.ask(b"put nope 0 5 0 907060870 7\r\nhello")
    detail = "The server do not accept topic nope"
    assert answer == result(500, failed(broker, "nope", 0, detail), 7)
    assert broker.topics.get("nope") is None


@pytest.mark.parametrize("partition", [4, 9, 1_000_000_000, 2147483647, -2, -2147483648])
async def test_partition_that_is_not_there_is_refused(
    broker: Broker, peer: MetaqPeer, partition: int
) -> None:
    answer = await peer.put("test", partition, b"hello")
    detail = f"wrong partition {partition}"
    assert answer == result(500, failed(broker, "test", partition, detail), 1)


@pytest.mark.parametrize("topic", ["plain", "TBW102", "SCHEDULE_TOPIC_XXXX", "IMAGO_META"])
async def test_topic_that_is_not_metaq_s_is_refused(
    broker: Broker, peer: MetaqPeer, topic: str
) -> None:
    answer = await peer.put(topic, 0, b"hello")
    detail = f"The server do not accept topic {topic}"
    assert answer == result(500, failed(broker, topic, 0, detail), 1)


async def test_closed_partition_is_refused_before_anything_else(
    broker: Broker, peer: MetaqPeer
) -> None:
    assert broker.topics.handles.close_partitions("test", 0, 0)
    answer = await peer.ask(b"put test 0 5 0 12345 21\r\nhello")  # the checksum is wrong, too
    detail = "partition[0-0] has been closed"
    assert answer == result(403, failed(broker, "test", 0, detail), 21)
    put_place(await peer.put("test", 1, b"hello"))
    broker.topics.handles.open_partitions("test")
    put_place(await peer.put("test", 0, b"hello"))


async def test_any_partition_means_an_open_one(broker: Broker, peer: MetaqPeer) -> None:
    broker.topics.handles.close_partitions("test", 1, 3)
    for _ in range(8):
        assert put_place(await peer.put("test", -1, b"x"))[1] == 0


async def test_any_partition_means_all_of_them(peer: MetaqPeer) -> None:
    chosen = {put_place(await peer.put("test", -1, b"x"))[1] for _ in range(100)}
    assert chosen == {0, 1, 2, 3}


async def test_any_partition_is_refused_when_all_are_closed(
    broker: Broker, peer: MetaqPeer
) -> None:
    broker.topics.handles.close_partitions("test", 0, 3)
    answer = await peer.put("test", -1, b"x")
    assert answer.startswith(b"result 403 ")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("TX:s1:1", "Local transaction 'TX:s1:1' has not been started."),
        ("XID:100:676c:6271:uq", "XA transaction 'XID:100:676c:6271:uq' has not been started."),
    ],
)
async def test_put_in_a_transaction_that_was_never_begun(
    peer: MetaqPeer, key: str, text: str
) -> None:
    request = f"put test 1 5 0 {HELLO_CHECKSUM} {key} 37\r\nhello".encode()
    assert await peer.ask(request) == result(500, text.encode(), 37)


async def test_message_above_the_limit_is_refused_and_the_connection_lives(
    broker: Broker, peer: MetaqPeer
) -> None:
    size = broker.config.metaq.message_bytes_max + 1
    answer = await peer.put("test", 0, bytes(size))
    assert answer.startswith(b"result 500 ")
    assert str(size).encode() in answer
    put_place(await peer.put("test", 0, bytes(size - 1)))


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (PutStatus.BUSY, result(503, "线程池繁忙".encode(), 1)),
        (PutStatus.STOPPING, result(503, "线程池繁忙".encode(), 1)),
    ],
)
async def test_busy_broker_says_so_in_the_protocol_s_words(
    broker: Broker, peer: MetaqPeer, status: PutStatus, answer: bytes
) -> None:
    broker.messages.refuse(status)
    assert await peer.put("test", 0, b"x") == answer


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (PutStatus.DISK_FULL, "The disk is full"),
        (PutStatus.NOT_WRITABLE, "the master of the shard takes no messages at the moment"),
        (PutStatus.FLUSH_TIMEOUT, ""),
    ],
)
async def test_put_that_could_not_be_kept_is_a_failure(
    broker: Broker, peer: MetaqPeer, status: PutStatus, detail: str
) -> None:
    broker.messages.refuse(status)
    assert await peer.put("test", 2, b"x") == result(500, failed(broker, "test", 2, detail), 1)
    broker.messages.refuse(None)
    put_place(await peer.put("test", 2, b"x"))


async def test_put_is_answered_after_the_disk_where_the_topic_wants_it(
    broker: Broker, peer: MetaqPeer
) -> None:
    broker.topics.create_or_update(
        TopicConfig(name="safe", attributes={"acknowledgement": "leader-fsync"})
    )
    put_place(await peer.put("safe", 0, b"x"))
    assert broker.store.durable_end > 0


async def test_producers_alone_make_no_files_of_metaq(broker: Broker, peer: MetaqPeer) -> None:
    await peer.put("test", 0, b"x")
    await peer.put("test", 0, b"y")
    config = broker.topics.get("test")
    assert config is not None
    assert not config.materialised


async def test_topic_of_a_pattern_is_made_by_its_first_put(tmp_path: Path) -> None:
    settings = ("metaq.topic_patterns=logs.*,a", "metaq.default_partitions=3")
    async with running_broker(tmp_path, *settings) as broker, metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("logs.web", 2, b"x"))
        config = broker.topics.get("logs.web")
        assert config is not None
        assert config.write_queues == 3
        for refused in ("logsXweb", "aa", "%RETRY%logs", "logs.a/b", "logs.*/../x"):
            assert (await peer.put(refused, 0, b"x")).startswith(b"result 500 ")


async def test_a_pattern_gives_its_settings_to_the_topics_that_it_makes(tmp_path: Path) -> None:
    settings = (
        "metaq.topic_patterns=a*,ab*",
        "metaq.default_partitions=3",
        "topics.ab*.queues=5",
        "topics.ab*.metaq_stat=true",
        "topics.a*.acknowledgement=leader-fsync",
    )
    async with running_broker(tmp_path, *settings) as broker, metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("ax", 2, b"x"))
        put_place(await peer.put("abx", 2, b"x"))
        first, second = broker.topics.get("ax"), broker.topics.get("abx")
        assert first is not None
        assert second is not None
        assert (first.write_queues, first.acknowledgement) == (3, "leader-fsync")
        assert (second.write_queues, second.metaq_stat) == (3, None), "the first that matches"
        config = load("[metaq]\ntopic_patterns = ['ab*']\n[topics.'ab*']\nqueues = 5\n")
        broker.reload(replace(broker.config, topics=config.topics, metaq=config.metaq))
        put_place(await peer.put("aby", 4, b"x"))
        assert (await peer.put("az", 0, b"x")).startswith(b"result 500 ")


async def test_any_topic_is_made_where_that_is_allowed(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, "metaq.auto_create_topic=true") as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        put_place(await peer.put("anything", 0, b"x"))
        for refused in ("SELF_TEST_TOPIC", "../x", "..", ".x", "%DLQ%g", "a\0b", "x" * 200):
            assert (await peer.put(refused, 0, b"x")).startswith(b"result 500 "), refused


async def test_pipelined_puts_of_several_topics_and_levels_are_all_answered(
    broker: Broker, peer: MetaqPeer
) -> None:
    broker.topics.create_or_update(
        TopicConfig(name="safe", attributes={"acknowledgement": "leader-fsync"})
    )
    requests = []
    for opaque in range(60):
        topic = ("test", "safe", "nope")[opaque % 3]
        requests.append(put_frame(topic, opaque % 4, b"m%d" % opaque, opaque=opaque))
    await peer.send(b"".join(requests))
    codes = {}
    for frame in await peer.frames(60):
        words = frame.split(b"\r\n")[0].split()
        codes[int(words[3])] = int(words[1])
    assert codes == {opaque: 500 if opaque % 3 == 2 else 200 for opaque in range(60)}


async def test_error_after_any_partition_names_the_chosen_one(
    broker: Broker, peer: MetaqPeer
) -> None:
    broker.topics.handles.close_partitions("test", 0, 2)
    answer = await peer.ask(b"put test -1 5 0 1 3\r\nhello")
    assert b"[partition 'test-3'] failed.Detail:Checksum failure," in answer
    unknown = [
        failed(broker, "nope", partition, "The server do not accept topic nope")
        for partition in range(broker.config.metaq.default_partitions)
    ]
    answer = await peer.ask(b"put nope -1 5 0 1 3\r\nhello")
    assert answer in [result(500, text, 3) for text in unknown]


async def test_topic_above_the_limit_is_refused_and_the_connection_lives(tmp_path: Path) -> None:
    settings = ("metaq.auto_create_topic=true", "topics.t.queues=1")
    async with running_broker(tmp_path, *settings) as broker, metaq_peer(broker.metaq_port) as peer:
        broker.topics.topics_max = len(broker.topics.all())
        answer = await peer.put("more", 0, b"x")
        assert answer.startswith(b"result 500 ")
        assert b"failed.Detail:there are " in answer
        put_place(await peer.put("t", 0, b"x"))


@pytest.mark.parametrize("method", ["tail", "closed_partitions"])
async def test_fault_costs_one_put_and_not_the_connection(
    peer: MetaqPeer, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("a fault of ours")

    with monkeypatch.context() as patch:
        patch.setattr(TopicHandles, method, fails)
        answer = await peer.put("test", 0, b"x")
    assert answer.startswith(b"result 500 ")
    assert b"a fault of ours" in answer
    put_place(await peer.put("test", 0, b"x"))


async def test_fault_in_the_middle_of_a_read_leaves_no_put_behind(
    broker: Broker, peer: MetaqPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(tail: QueueTail, body: bytes, *rest: Any) -> Entry:
        if body == b"broken":
            raise LookupError("a fault of ours")
        return metaq_entry(tail, body, *rest)

    def take(data: bytes, limits: Any, tails: Any, born: Any, entries: Any, asked: Any) -> int:
        take_puts(data, limits, tails, born, entries, asked)
        raise LookupError("a fault of ours")

    put_place(await peer.put("test", 0, b"first"))
    monkeypatch.setattr(puts, "metaq_entry", entry)
    monkeypatch.setattr(puts, "take_puts", take)
    bodies = [b"1", b"2", b"broken", b"3", b"4"]
    frames = [put_frame("test", 0, body, opaque=n) for n, body in enumerate(bodies)]
    await peer.send(b"".join(frames))
    codes = {}
    for frame in await peer.frames(5):
        words = frame.split(b"\r\n")[0].split()
        codes[int(words[3])] = int(words[1])
    assert codes == {0: 200, 1: 200, 2: 500, 3: 200, 4: 200}
    async with metaq_peer(broker.metaq_port) as other:
        put_place(await other.put("test", 0, b"5"))
    (session,) = [s for s in broker.ports.metaq.sessions if isinstance(s, TextSession)][:1]
    assert session.channel.puts == 0


async def test_message_larger_than_a_file_fails_alone(
    broker: Broker, peer: MetaqPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_place(await peer.put("test", 0, b"first"))
    append = broker.store.append

    def limited(entries: Sequence[Entry], **options: bool) -> list[Placed]:
        if any(entry[1] == b"large" for entry in entries):
            raise LimitExceededError("record", size=5, size_max=4)
        return append(entries, **options)

    monkeypatch.setattr(broker.store, "append", limited)
    frames = [put_frame("test", 0, b"large" if n == 7 else b"m%d" % n, opaque=n) for n in range(12)]
    async with metaq_peer(broker.metaq_port) as other:
        session_frames = list(broker.ports.metaq.sessions)
        for session, data in zip(session_frames, (frames[:6], frames[6:]), strict=True):
            assert isinstance(session, TextSession)
            session.data_received(b"".join(data))
        answers = [*await peer.frames(6), *await other.frames(6)]
    codes: dict[int, int] = {}
    for frame in answers:
        words = frame.split(b"\r\n")[0].split()
        codes[int(words[3])] = int(words[1])
    assert codes == {n: 500 if n == 7 else 200 for n in range(12)}
    assert not broker.messages.in_flight
    assert [s.channel.puts for s in broker.ports.metaq.sessions if isinstance(s, TextSession)][
        :1
    ] == [0]
