"""What a client that traces tells of the messages that it sends and handles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import Client, ClientConfig, ClientError, Decision, Message, UsageError
from imago_client.blocking import Client as BlockingClient
from imago_client.core.sending import tracing
from imago_client.rocketmq import tracing as tracer
from imago_wire.remoting.texts.trace import TraceRecord, decode_trace, encode_trace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from imago_client import ReceivedMessage, SendResult

TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
async def traced(bootstrap: str) -> AsyncIterator[Client]:
    async with Client(ClientConfig(bootstrap=(bootstrap,), trace=True)) as client:
        await client.admin.create_topic("orders", queues=1)
        yield client


async def told(client: Client, topic: str = TOPIC) -> list[tuple[tuple[str, ...], TraceRecord]]:
    """Return all that is in the trace topic: keys of the message, and a record."""
    found = []
    for queue in await client.producer().queues(topic):
        pulled = await client.pull_consumer("G").pull(queue, 0)
        for message in pulled.messages():
            found += [(message.keys, record) for record in decode_trace(message.body)]
    return found


async def send_and_handle(traced: Client) -> SendResult:
    """Send one message and a batch of two, of which the first that comes is handled badly."""
    handled: list[bytes] = []
    two = asyncio.Event()

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        handled.extend(message.body for message in messages)
        if len(handled) == 1:
            raise ValueError("the first is handled badly")
        two.set()

    async with traced.push_consumer("G", ["orders"], handle):
        sent = await traced.producer().send(Message("orders", b"one", tags="T", keys=("k", "l")))
        batch = [Message("orders", b"two", keys=("m",)), Message("orders", b"3")]
        await traced.producer().send_batch(batch)
        async with asyncio.timeout(50):
            await two.wait()
    await traced.close()
    return sent


async def test_sends_and_what_handlers_did_are_told(traced: Client, client: Client) -> None:
    sent = await send_and_handle(traced)
    records = await told(client)
    published = {r.fields["msgId"]: r.fields for _, r in records if r.kind == "Pub"}
    assert len(published) == 3
    one = published[sent.message_id]
    assert one["storeHost"].startswith("127.0.0.1:")
    expected = {
        "groupName": "IMAGO_PRODUCER", "topic": "orders", "tags": "T", "keys": "k l",
        "bodyLength": "3", "msgType": "0", "offsetMsgId": sent.stored_id, "isSuccess": "true",
        "regionId": "DefaultRegion",
    }  # fmt: skip
    assert {name: one[name] for name in expected} == expected
    for keys, record in records:
        assert {record.fields["msgId"], *record.fields["keys"].split()} <= set(keys)
    before = {r.fields["requestId"]: r.fields for _, r in records if r.kind == "SubBefore"}
    after = {r.fields["requestId"]: r.fields for _, r in records if r.kind == "SubAfter"}
    outcomes = [(fields["isSuccess"], fields["contextCode"]) for fields in after.values()]
    assert outcomes.count(("false", "4")) == 1
    assert set(outcomes) == {("false", "4"), ("true", "0")}
    assert after.keys() == before.keys()
    assert {fields["groupName"] for fields in before.values()} == {"G"}


async def test_half_message_is_told_as_one(traced: Client, client: Client) -> None:
    async def check(_: ReceivedMessage) -> Decision:
        return Decision.COMMIT

    async with traced.transaction_producer("P", check) as producer:
        await (await producer.begin(Message("orders", b"half"))).commit()
    await traced.close()
    [(_, record)] = await told(client)
    assert (record.kind, record.fields["msgType"]) == ("Pub", "1")


async def test_what_finds_no_room_is_dropped(
    traced: Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer, "WAITING_MAX", 2)
    monkeypatch.setattr(tracing, "RECORDS_MAX", 1)
    await traced.producer().send_batch([Message("orders", b"%d" % n) for n in range(5)])
    assert traced._tracer is not None
    assert traced._tracer.dropped == 3
    await traced.close()
    assert len(await told(client)) == 2


async def test_keys_are_told_in_as_many_messages_as_they_need(
    traced: Client, client: Client
) -> None:
    batch = [Message("orders", b"", keys=(f"{number}" * 300,)) for number in range(100, 200)]
    await traced.producer().send_batch(batch)
    await traced.producer().send(Message("orders", b"", keys=("x" * 32_000, "last")))
    await traced.close()
    found = await told(client)
    small = {r.fields["keys"]: keys for keys, r in found if len(r.fields["keys"]) < 1000}
    assert small.keys() == {message.keys[0] for message in batch}
    assert all(key in keys for key, keys in small.items())
    [keys] = [keys for keys, record in found if record.fields["keys"].endswith(" last")]
    assert keys[1:] == ("last",), "a key without room is left out of what it is looked up by"


def test_records_go_apart_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    record = TraceRecord("SubBefore", {"keys": "k" * 10})
    size = len(encode_trace([record]))
    monkeypatch.setattr(tracing, "RECORDS_BYTES_MAX", 2 * size)
    traces = [tracing.Trace("orders", (f"key{number}",), record) for number in range(5)]
    assert [len(part) for part in tracing.parts(traces)] == [2, 2, 1]
    monkeypatch.setattr(tracing, "RECORDS_BYTES_MAX", size - 1)
    assert [len(part) for part in tracing.parts(traces)] == [1] * 5
    monkeypatch.setattr(tracing, "RECORDS_BYTES_MAX", 10 * size)
    monkeypatch.setattr(tracing, "KEYS_BYTES_MAX", 3 * len("key0 "))
    assert [len(part) for part in tracing.parts(traces)] == [3, 2]
    assert tracing.message(traces, TOPIC).keys == ("key0", "key1", "key2")


async def test_what_cannot_be_told_is_dropped_and_the_client_closes(
    traced: Client, client: Client
) -> None:
    assert traced._tracer is not None
    record = TraceRecord("SubBefore", {"keys": ""})
    bad = tracing.Trace("bad", ("a b",), record)
    traced._tracer.note([bad, tracing.Trace("good", ("id",), record)])
    await traced.close()
    assert traced._tracer.dropped == 1
    assert [keys for keys, _ in await told(client)] == [("id",)]


async def test_close_sends_also_what_is_being_sent(
    traced: Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer, "PAUSE_S", 0)
    monkeypatch.setattr(tracing, "RECORDS_MAX", 1)
    assert traced._tracer is not None
    sends, begun = traced._tracer._send, asyncio.Event()

    async def send(*parts: Any) -> None:
        begun.set()
        await asyncio.sleep(0)
        await sends(*parts)

    monkeypatch.setattr(traced._tracer, "_send", send)
    await traced.producer().send_batch([Message("orders", b"%d" % n) for n in range(5)])
    await begun.wait()
    await traced.close()
    assert len(await told(client)) == 5


async def test_traces_are_not_traced(bootstrap: str, client: Client) -> None:
    handled = asyncio.Event()

    async def handle(_: Sequence[ReceivedMessage]) -> None:
        handled.set()

    await client.admin.create_topic("traces", queues=1)
    config = ClientConfig(bootstrap=(bootstrap,), trace=True, trace_topic="traces")
    async with (
        Client(config) as traced,
        traced.push_consumer("G", ["traces"], handle),
        asyncio.timeout(50),
    ):
        await traced.producer().send(Message("traces", b""))
        await handled.wait()
    assert await told(client, "traces") == []


async def test_client_closes_whatever_ends_badly_before(
    traced: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise ValueError("traces")

    assert traced._tracer is not None
    await traced.producer().send(Message("orders", b""))
    monkeypatch.setattr(traced._tracer, "close", fail)
    with pytest.raises(ValueError, match="traces"):
        await traced.close()
    with pytest.raises(ClientError):
        await traced.producer().send(Message("orders", b""))


def test_blocking_client_says_that_it_does_not_trace() -> None:
    with pytest.raises(UsageError, match="only the asyncio client"):
        BlockingClient(ClientConfig(bootstrap=("127.0.0.1:9876",), trace=True))
