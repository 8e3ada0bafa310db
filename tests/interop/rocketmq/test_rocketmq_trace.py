"""Message trace: what clients tell about a message, and mqadmin shows of it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ClientConfig, ConsumerConfig, Message, ProducerConfig
from imago_client.config import parse_addresses
from imago_testing.interop.drivers import PARTS, ROCKETMQ4, ROCKETMQ5
from imago_testing.interop.rocketmq import Outgoing
from imago_testing.java.driver import DriverError, JavaDriver, java_command
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from imago_client import ReceivedMessage
    from imago_testing.interop.rocketmq import RocketmqClient

pytestmark = [pytest.mark.interop, pytest.mark.shows("query")]
CLIENTS = {4: ROCKETMQ4, 5: ROCKETMQ5}


@pytest.fixture
def mqadmin(rocketmq: RocketmqClient, tmp_path: Path) -> Iterator[Callable[..., str]]:
    module, _ = PARTS[CLIENTS[rocketmq.version]]
    main = "dev.imago.interop.rocketmq.Tools"
    driver = JavaDriver("mqadmin", java_command(module, main, tmp_path), tmp_path).wait_ready()

    def run(*line: str) -> str:
        printed: str = driver.call("run", namesrv=rocketmq.namesrv, line=line)
        return printed

    yield run
    driver.close()


def traced(mqadmin: Callable[..., str], message_id: str) -> dict[str, list[str]]:
    """Wait until mqadmin shows who sent and who consumed a message: group and outcome of each."""
    shown: dict[str, list[str]] = {}

    def both_sides() -> bool:
        try:
            printed = mqadmin("queryMsgTraceById", "-i", message_id)
        except DriverError:
            return False  # nothing of it is there yet
        for side, group, outcome in re.findall(r"(?m)^(Pub|Sub) +(\S+) .* (\S+) *$", printed):
            shown[side] = [group, outcome]
        return len(shown) == 2

    wait_until(both_sides, seconds_max=60, what=f"both sides of the trace of {message_id}")
    return shown


@pytest.mark.both_clients
def test_mqadmin_shows_who_sent_and_who_consumed_a_message(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str], mqadmin: Callable[..., str]
) -> None:
    producers, consumers = unique("p"), unique("c")
    with (
        rocketmq.producer(producers, trace=True) as producer,
        rocketmq.push(topic, consumers, trace=True) as consumer,
    ):
        [sent] = producer.send(topic, [Outgoing(body=b"traced", keys="key", tags="T")])
        assert [each.body for each in consumer.take(1)] == [b"traced"]
        shown = traced(mqadmin, sent.id)
    assert shown == {"Pub": [producers, "success"], "Sub": [consumers, "success"]}


@pytest.mark.both_clients
async def test_mqadmin_shows_what_our_own_client_traces(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str], mqadmin: Callable[..., str]
) -> None:
    producers, consumers = unique("p"), unique("c")
    config = ClientConfig(bootstrap=parse_addresses(rocketmq.namesrv), trace=True)
    handled = asyncio.Event()

    async def handle(_: Sequence[ReceivedMessage]) -> None:
        handled.set()

    async with Client(config) as client:
        group = ConsumerConfig(group=consumers, start_from="earliest")
        async with client.push_consumer(group, [topic], handle):
            producer = client.producer(ProducerConfig(group=producers))
            sent = await producer.send(Message(topic, b"traced", keys=("key",), tags="T"))
            async with asyncio.timeout(60):
                await handled.wait()
    shown = await asyncio.to_thread(traced, mqadmin, sent.message_id)
    assert shown == {"Pub": [producers, "success"], "Sub": [consumers, "success"]}
