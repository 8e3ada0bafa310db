"""What a client that traces tells of the messages that it sends and handles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ClientConfig, Decision, Message, UsageError
from imago_client import tracing as tracer
from imago_client.blocking import Client as BlockingClient
from imago_client.core import tracing
from imago_wire.remoting.trace import TraceRecord, decode_trace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from imago_client import ReceivedMessage, SendResult

TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
async def traced(bootstrap: str) -> AsyncIterator[Client]:
    async with Client(ClientConfig(bootstrap=(bootstrap,), trace=True)) as client:
        await client.admin.create_topic("orders", queues=1)
        yield client


async def told(client: Client) -> list[tuple[tuple[str, ...], TraceRecord]]:
    """Return all that is in the trace topic: keys of the message, and a record."""
    found = []
    for queue in await client.producer().queues(TOPIC):
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


def test_blocking_client_says_that_it_does_not_trace() -> None:
    with pytest.raises(UsageError, match="only the asyncio client"):
        BlockingClient(ClientConfig(bootstrap=("127.0.0.1:9876",), trace=True))
