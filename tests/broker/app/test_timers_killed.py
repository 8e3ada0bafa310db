"""A broker process that is killed again and again: each timer it took is delivered once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess, accepts
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.processes]

LIVES = 5
ROUND = 40
SECONDS_MAX = 60.0
CONFIG = """
[broker]
data_dir = "{folder}/data"
bind = "127.0.0.1"
host = "127.0.0.1"
[metaq]
enabled = false
[rocketmq]
port = {rocketmq}
grpc_port = 0
[namesrv]
enabled = false
[admin]
enabled = false
[store]
segment_bytes_max = 8388608
disk_clean_ratio = 1.0
disk_force_ratio = 1.0
disk_full_ratio = 1.0
"""


class Machine:
    """One data folder and whichever process has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port_block(6) + 3
        self.config = folder / "broker.toml"
        self.config.write_text(CONFIG.format(folder=folder, rocketmq=self.port))
        self.server: ServerProcess | None = None

    async def start(self) -> None:
        command = [str(Path(sys.executable).parent / "imago"), "broker", "--config"]
        self.server = ServerProcess.start("broker", [*command, str(self.config)], self.folder)
        end = time.monotonic() + SECONDS_MAX
        while not accepts(self.port):
            assert time.monotonic() < end, self.server.log_path.read_text()
            await asyncio.sleep(0.05)

    def kill(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server = None


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.kill()


async def send_timers(machine: Machine, rng: Random, taken: list[str], life: int) -> None:
    """Send until the process is gone; note what was acknowledged."""
    peer = await RemotingPeer.connect(machine.port)
    with contextlib.suppress(ConnectionError):
        for number in range(100_000):
            names = [f"{life}-{number}-{n}" for n in range(ROUND)]
            asked = [peer.send(310, timer(rng), name.encode()) for name in names]
            for name, opaque in zip(names, asked, strict=True):
                if (await peer.answer(opaque)).code == 0:
                    taken.append(name)
            await asyncio.sleep(0.02)
    await peer.close()


def timer(rng: Random) -> dict[str, object]:
    properties = f"TIMER_DELAY_MS\x01{rng.randint(50, 4000)}\x02UNIQ_KEY\x01u\x02"
    return send_ext("T", 0, properties)


async def delivered(peer: RemotingPeer) -> list[str]:
    found: list[str] = []
    while True:
        answer = await peer.pull("T", len(found), imagoBatch="true", maxMsgNums=5000)
        if not answer.body:
            return found
        found += [message.body.decode() for message in decode_messages(answer.body)]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
async def test_killed_broker_delivers_each_timer_once(machine: Machine, seed: int) -> None:
    rng = Random(seed)
    taken: list[str] = []
    for life in range(LIVES):
        await machine.start()
        sending = asyncio.create_task(send_timers(machine, rng, taken, life))
        await asyncio.sleep(rng.uniform(1.0, 3.0))
        machine.kill()
        await sending
    await machine.start()
    peer = await RemotingPeer.connect(machine.port)
    await peer.put("T", b"awake", queue_id=1)
    end = time.monotonic() + SECONDS_MAX
    told = await delivered(peer)
    while not set(taken) <= set(told) and time.monotonic() < end:
        await asyncio.sleep(0.5)
        told = await delivered(peer)
    await peer.close()
    assert len(taken) > LIVES * ROUND
    assert set(taken) <= set(told), "nothing acknowledged is lost"
    assert len(told) == len(set(told)), "none twice"
