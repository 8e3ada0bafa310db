"""Requests and their replies, of the asyncio and the blocking client, with a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import (
    BrokerError,
    Client,
    ConsumerConfig,
    Message,
    NoReplyError,
    ProducerConfig,
    SendFailedError,
    StartFrom,
    TryAgainError,
    UsageError,
)
from imago_client.blocking import Client as BlockingClient
from imago_client.core.sending.requesting import AwaitedReplies, heartbeat, read_reply
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.route import BrokerData, ClusterInfo
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from imago_client import PushConsumer, ReceivedMessage
    from imago_client.core.effects import Request

GENEROUS_S = 50.0
CONFIG = ConsumerConfig(group="repliers", start_from=StartFrom.EARLIEST)


async def replier(client: Client, prefix: bytes = b"re: ") -> PushConsumer:
    producer = client.producer(ProducerConfig(compress_over_bytes=1000))

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            await producer.reply(message, prefix + message.body, properties={"who": "replier"})

    await client.admin.create_topic("questions", queues=2)
    consumer = client.push_consumer(CONFIG, ["questions"], handler)
    await consumer.start()
    return consumer


@pytest.fixture
async def replying(bootstrap: str) -> AsyncIterator[PushConsumer]:
    async with Client(bootstrap) as other:
        yield await replier(other)


@pytest.mark.usefixtures("replying")
async def test_request_returns_the_reply_of_its_consumer(client: Client) -> None:
    async with client.requester() as requester:
        reply = await requester.request(Message("questions", b"how many?"), timeout_s=GENEROUS_S)
    assert reply.body == b"re: how many?"
    assert reply.properties["who"] == "replier"


@pytest.mark.usefixtures("replying")
async def test_each_of_many_requests_gets_its_own_reply(client: Client) -> None:
    bodies = [b"%d" % number * (1 + 500 * (number % 2)) for number in range(50)]
    async with client.requester() as one, client.requester() as other:
        replies = await asyncio.gather(
            *(
                (one, other)[at % 2].request(Message("questions", body), timeout_s=GENEROUS_S)
                for at, body in enumerate(bodies)
            )
        )
    assert [reply.body for reply in replies] == [b"re: " + body for body in bodies]


@pytest.mark.usefixtures("replying")
async def test_blocking_request_returns_the_reply_of_its_consumer(bootstrap: str) -> None:
    def work() -> list[bytes]:
        with BlockingClient(bootstrap) as client:
            requester = client.requester()
            return [
                requester.request(Message("questions", body), timeout_s=GENEROUS_S).body
                for body in (b"one", b"two")
            ]

    assert await asyncio.to_thread(work) == [b"re: one", b"re: two"]


async def test_blocking_consumer_replies(client: Client, bootstrap: str) -> None:
    await client.admin.create_topic("questions", queues=1)

    def work() -> None:
        with BlockingClient(bootstrap) as other:
            consumer = other.group_consumer(CONFIG, ["questions"])
            while not (messages := consumer.poll(1.0)):
                continue
            other.producer().reply(messages[0], b"yes")
            consumer.commit()

    async with asyncio.TaskGroup() as tasks, client.requester() as requester:
        tasks.create_task(asyncio.to_thread(work))
        reply = await requester.request(Message("questions", b"?"), timeout_s=GENEROUS_S)
    assert reply.body == b"yes"


async def test_request_that_nobody_replies_to_says_so(client: Client, bootstrap: str) -> None:
    await client.admin.create_topic("questions", queues=1)
    async with client.requester() as requester:
        with pytest.raises(NoReplyError, match=r"no reply within 0\.2 s; does a consumer"):
            await requester.request(Message("questions", b"?"), timeout_s=0.2)

    def work() -> None:
        with (
            BlockingClient(bootstrap) as blocking,
            pytest.raises(NoReplyError, match=r"no reply within 0\.2 s"),
        ):
            blocking.requester().request(Message("questions", b"?"), timeout_s=0.2)

    await asyncio.to_thread(work)


async def test_replier_hears_that_its_requester_is_gone(client: Client, bootstrap: str) -> None:
    await client.admin.create_topic("questions", queues=1)
    async with Client(bootstrap) as gone, gone.requester() as requester:
        with pytest.raises(NoReplyError):
            await requester.request(Message("questions", b"?"), timeout_s=0.2)
    async with asyncio.timeout(GENEROUS_S):
        message = await first_message(client)
        with pytest.raises(SendFailedError, match=r"channel of .* not found") as caught:
            await client.producer().reply(message, b"too late")
    assert all(isinstance(cause, BrokerError) for cause in caught.value.causes)


async def first_message(client: Client) -> ReceivedMessage:
    consumer = client.pull_consumer("anybody")
    while True:
        for queue in await consumer.queues("questions"):
            for message in (await consumer.pull(queue, 0)).messages():
                return message


async def test_message_that_is_no_request_gets_no_reply(client: Client) -> None:
    await client.admin.create_topic("questions", queues=1)
    await client.producer().send(Message("questions", b"?"))
    message = await first_message(client)
    with pytest.raises(UsageError, match="asks for no reply"):
        await client.producer().reply(message, b"answer")
    with pytest.raises(UsageError, match="idempotent"):
        await client.producer(idempotent=True).reply(message, b"answer")
    with pytest.raises(UsageError, match="idempotent"):
        await client.requester(ProducerConfig(idempotent=True)).request(Message("questions", b"?"))
    with pytest.raises(UsageError, match="timeout_s"):
        await client.requester().request(Message("questions", b"?"), timeout_s=0)


async def test_requester_is_reached_again_after_its_connections_were_lost(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        bootstrap = f"127.0.0.1:{broker.ports.namesrv_port}"
        loop = asyncio.get_running_loop()

        async def drop_connections() -> None:
            for session in broker.ports.rocketmq.sessions:
                session.transport.abort()

        def work() -> None:
            with BlockingClient(bootstrap) as client:
                requester = client.requester()
                requester.request(Message("questions", b"one"), timeout_s=GENEROUS_S)
                asyncio.run_coroutine_threadsafe(drop_connections(), loop).result(GENEROUS_S)
                reply = requester.request(Message("questions", b"two"), timeout_s=GENEROUS_S)
                assert reply.body == b"re: two"

        async with (
            Client(bootstrap) as other,
            Client(bootstrap) as client,
            client.requester() as requester,
        ):
            await replier(other)
            await asyncio.to_thread(work)
            for body in (b"one", b"two"):
                reply = await requester.request(Message("questions", body), timeout_s=GENEROUS_S)
                assert reply.body == b"re: " + body
                await drop_connections()


def masters(**shards: str) -> bytes:
    table = {
        name: BrokerData(broker_name=name, broker_addrs={0: address}, cluster="test")
        for name, address in shards.items()
    }
    return ClusterInfo(broker_addr_table=table, cluster_addr_table={}).encode(standard=True)


def test_every_master_hears_of_a_requester_and_one_is_enough() -> None:
    def brokers(request: Request) -> RemotingCommand:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return response(body=masters(a="a:1", b="b:1"))
        return response(refused if request.address == "a:1" else 0)

    world = ScriptedServers(brokers=brokers)
    refused = 0
    assert world.run(heartbeat(world.state, ProducerConfig())) == []
    assert [one.address for one in world.asked(RequestCode.HEART_BEAT)] == ["a:1", "b:1"]
    refused = int(ResponseCode.SYSTEM_ERROR)
    assert len(world.run(heartbeat(world.state, ProducerConfig()))) == 1
    world.brokers = lambda _: response(body=masters())
    with pytest.raises(TryAgainError, match="knows no master"):
        world.run(heartbeat(world.state, ProducerConfig()))


def test_reply_that_is_none_is_refused_and_a_late_one_is_not() -> None:
    awaited = AwaitedReplies()
    broken = RemotingCommand(code=RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, body=b"x")
    with pytest.raises(ProtocolError):
        read_reply(broken)
    assert awaited.arrived(broken).code == ResponseCode.SYSTEM_ERROR
    ext = dict.fromkeys(("producerGroup", "topic", "defaultTopic", "bornHost", "storeHost"), "t")
    numbers = ("defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag")
    ext |= dict.fromkeys((*numbers, "storeTimestamp"), "0")
    late = RemotingCommand(code=RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext=ext, body=b"x")
    assert awaited.arrived(late).code == ResponseCode.SUCCESS
