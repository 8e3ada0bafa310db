"""Kills what a Spark query needs at random moments, and counts what it has copied.

`python -m imago_testing.kills FIRST LAST` runs these seeds one after the other, a line for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from imago_client import Client, ClientConfig, ClientError, Message, batches
from imago_client.config import parse_addresses
from imago_testing.kills.query import COPY, SOURCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_testing.clusters.shard_processes import Members

ROWS: Final = 3000
STARTS_MAX: Final = 20
RUN_SECONDS_MAX: Final = 600.0
"""Without a new file of the query: on a busy machine all of it takes longer."""
_HERE: Final = Path(__file__).parents[2]


@dataclass
class Outcome:
    """What one seed has come to."""

    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    lost: int = 0
    twice: int = 0

    def count(self, found: list[int]) -> None:
        """Compare a copy with what was sent."""
        seen = Counter(found)
        self.lost += sum(number not in seen for number in range(ROWS))
        self.twice += len(found) - len(seen)


async def copy_under_kills(members: Members, folder: Path, seed: int, kills: int = 4) -> Outcome:
    """Copy a topic, whatever is killed meanwhile; return what was lost, and what is there twice."""
    rng, outcome = Random(seed), Outcome()
    async with Client(
        ClientConfig(bootstrap=parse_addresses(members.bootstrap), request_timeout_s=60.0)
    ) as client:
        await members.leader(client)
        await _patiently(lambda: client.admin.create_topic(COPY, queues=3))
        producer = client.producer()
        sent = [Message(SOURCE, b"%d" % number, keys=(f"k{number}",)) for number in range(ROWS)]
        for batch in batches(sent, bytes_max=20_000):
            await producer.send_batch(batch)
        running = _Driver(members.bootstrap, folder, outcome)
        try:
            for _ in range(kills):
                await running.pause(rng.uniform(6, 20))
                if running.done:
                    break
                what = rng.choice(["driver", "worker", "master"])
                await _kill(what, running, members, client)
                outcome.kills[what] += 1
                running.go_on()
            await running.finish(seed)
        finally:
            running.end()
    for found in json.loads((folder / "found.json").read_text()).values():
        outcome.count(found)
    return outcome


class _Driver:
    """The query's process, started again whenever it has ended too soon."""

    def __init__(self, bootstrap: str, folder: Path, outcome: Outcome) -> None:
        self._bootstrap, self._folder, self._outcome = bootstrap, folder, outcome
        self._process = self._start()

    @property
    def done(self) -> bool:
        return (self._folder / "found.json").exists()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self) -> subprocess.Popen[bytes]:
        self._outcome.starts += 1
        if self._outcome.starts > STARTS_MAX:
            raise RuntimeError(f"the query ended {STARTS_MAX} times: {self._folder}/driver.log")
        module = "imago_testing.kills.query"
        command = [sys.executable, "-m", module, self._bootstrap, str(self._folder)]
        path = os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")])
        env = os.environ | {"PYTHONPATH": path}
        with (self._folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env=env, start_new_session=True
            )

    def go_on(self) -> None:
        if self._process.poll() is not None and not self.done:
            self._process = self._start()

    async def pause(self, seconds: float) -> None:
        """Wait, at most until it has ended."""
        end = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < end:  # noqa: ASYNC110  a process
            await asyncio.sleep(0.1)

    async def finish(self, seed: int) -> None:
        """Let it come to its end."""
        while not self.done:
            before = self._state()
            await self.pause(RUN_SECONDS_MAX)
            if self._process.poll() is None and self._state() == before:
                raise TimeoutError(f"seed {seed}: the query does not go on")
            self.go_on()

    def _state(self) -> tuple[int, int]:
        """Return what grows as long as it works: starts, and files of checkpoints and copies."""
        return self._outcome.starts, sum(1 for _ in self._folder.rglob("*"))

    def end(self) -> None:
        """Kill it with its JVM and all workers, as a lost machine does."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            for pid in _workers(self.pid):  # they have a group of their own
                os.kill(pid, signal.SIGKILL)
            self._process.wait()


async def _patiently(work: Callable[[], Awaitable[object]]) -> None:
    """Do it again until it is done: the shard has only begun, and the machine may be busy."""
    end = time.monotonic() + RUN_SECONDS_MAX
    while True:
        try:
            await work()
        except ClientError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(1)
        else:
            return


async def _kill(what: str, driver: _Driver, members: Members, client: Client) -> None:
    if what == "driver":
        driver.end()
    elif what == "worker":
        for pid in _workers(driver.pid):
            os.kill(pid, signal.SIGKILL)
    else:
        number = await members.leader(client)
        members.processes[number].kill()
        await members.leader(client, but=number)
        members.start(number)


def _workers(session: int) -> list[int]:
    """Return the Python workers of a session of processes."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            is_worker = b"pyspark" in (entry / "cmdline").read_bytes()
            if is_worker and os.getsid(int(entry.name)) == session:
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended
    return [pid for pid in found if pid != session]
