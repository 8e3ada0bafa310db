"""As many long polls as a broker holds: each costs little memory, and all are answered."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_testing.peers.witness import TOPIC
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import FrameDecoder, encode_frame

if TYPE_CHECKING:
    from imago_testing.processes.broker import BrokerProcess

pytestmark = [pytest.mark.processes]
CONNECTIONS = 50
BASE_BYTES = 100_000_000
"""What a broker takes that holds nothing, and what its allocator keeps."""
WAIT_MS = 600_000


class Poller:
    """One connection with many pulls that wait."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, count: int, offset: int) -> None:
        for opaque in range(count):
            ext = pull_ext(TOPIC, offset, sysFlag=4 | 2, suspendTimeoutMillis=WAIT_MS)
            text = {name: str(value) for name, value in ext.items()}
            self.writer.write(encode_frame(RemotingCommand(code=11, opaque=opaque, ext=text)))
            if opaque % 100 == 0:
                await self.writer.drain()
        await self.writer.drain()

    async def answers(self, count: int) -> set[int]:
        """Return the numbers of all that are answered with messages."""
        decoder, found = FrameDecoder(), set[int]()
        while len(found) < count:
            data = await self.reader.read(1 << 18)
            assert data, f"closed after {len(found)} answers"
            decoder.feed(data)
            while (frame := decoder.next_frame()) is not None:
                assert frame.code == ResponseCode.SUCCESS
                found.add(frame.opaque)
        return found

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def held(broker: BrokerProcess) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.admin}/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("imago_rocketmq_pulls_held "):
                return int(float(line.split()[1]))
    raise AssertionError("the metric is not there")


async def put(peer: RemotingPeer) -> int:
    """Send a message to all who wait, and return its offset."""
    sent = await peer.put(TOPIC, b"for all")
    assert sent.code == ResponseCode.SUCCESS, json.dumps(dict(sent.ext))
    return int(sent.ext["queueOffset"])


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.full)])
async def test_long_polls_cost_little_and_are_all_answered(
    patient_broker: BrokerProcess, count: int
) -> None:
    each = count // CONNECTIONS
    peer = await RemotingPeer.connect(patient_broker.rocketmq)
    offset = await put(peer) + 1
    pollers = [
        Poller(*await asyncio.open_connection("127.0.0.1", patient_broker.rocketmq))
        for _ in range(CONNECTIONS)
    ]
    await asyncio.gather(*(poller.ask(each, offset) for poller in pollers))
    async with asyncio.timeout(300):
        while held(patient_broker) < count:  # noqa: ASYNC110  another process
            await asyncio.sleep(0.5)
    size = patient_broker.resident_bytes()
    assert size <= BASE_BYTES + 1000 * count, f"{size >> 20} MiB with {count} polls"
    await put(peer)
    await peer.close()
    found = await asyncio.gather(*(poller.answers(each) for poller in pollers))
    assert all(numbers == set(range(each)) for numbers in found)
    for poller in pollers:
        await poller.close()
