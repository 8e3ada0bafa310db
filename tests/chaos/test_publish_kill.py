"""kill -9 of masters while a sink publishes: readers see a micro-batch of a shard whole, once."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psutil
import pytest

from imago_client import Message
from imago_client.blocking import Client
from imago_client.core.sending.staging import MicroBatch
from imago_client.errors import ClientError
from imago_client.message_queue import MessageQueue
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.full]

T = TypeVar("T")
TOPIC: Final = "figures"
SHARDS: Final = ("shard-0", "shard-1")
ROUNDS, QUEUES, PARTS, ROWS, ROW_BYTES = 6, 2, 8, 100, 500
SECONDS_MAX = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[ServerProcess, str]]:
    """Two shards of two members each, whose processes come back when they die."""
    base = free_port_block(60)
    command = [sys.executable, "-m", "imago_cli", "up", "--shards", "2", "--replicas", "2"]
    command += ["--set", "zookeeper.session_timeout_ms=2000"]
    command += ["--data", str(tmp_path / "data"), "--port-base", str(base), "--json"]
    server = ServerProcess.start("up", command, tmp_path)
    try:
        wait_until(
            lambda: '"namesrv"' in server.log_path.read_text(),
            what="ready",
            seconds_max=SECONDS_MAX,
        )
        yield server, f"127.0.0.1:{base}"
    finally:
        server.stop()


def master_of(server: ServerProcess, client: Client, shard: str) -> psutil.Process | None:
    """Return the process that leads a shard, None: nobody does, or it has gone."""
    with contextlib.suppress(ClientError, psutil.Error):
        (address,) = [one.addresses[0] for one in client.admin.shards() if one.shard == shard]
        port = int(address.rpartition(":")[2])
        for process in psutil.Process(server.pid).children(recursive=True):
            if any(one.laddr.port == port for one in process.net_connections("tcp")):
                return process
    return None


def patiently(work: Callable[..., T], *arguments: Any) -> T:
    """Do it as a driver does that comes back until it has its answer."""
    end = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return work(*arguments)
        except ClientError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def stage(client: Client, batch: MicroBatch, attempt: str) -> dict[str, int]:
    """Stage an attempt's rows on both shards; return how many parts there are by shard."""
    taken: dict[str, int] = {}
    for shard in SHARDS:
        for part in range(PARTS):
            name = f"{batch.number} {attempt} {part} ".encode()
            rows = [Message(TOPIC, (name + b"%d " % row).ljust(ROW_BYTES)) for row in range(ROWS)]
            queue = MessageQueue(TOPIC, shard, part % QUEUES)
            size = patiently(client.producer().stage, batch, attempt, part, queue, rows)
            taken[shard] = taken.get(shard, 0) + bool(size)
    return {shard: parts for shard, parts in taken.items() if parts}


def seen(client: Client, shard: str) -> Counter[tuple[int, str]]:
    """Return how many rows of which micro-batch and attempt readers find on a shard."""
    consumer, found = client.pull_consumer("readers"), Counter[tuple[int, str]]()
    for queue_id in range(QUEUES):
        queue, at = MessageQueue(TOPIC, shard, queue_id), 0
        end = consumer.max_offset(queue)
        while at < end:
            pulled = consumer.pull(queue, at)
            for one in pulled.messages():
                number, attempt, *_ = one.body.split()
                found[int(number), attempt.decode()] += 1
            at = pulled.next_offset
    return found


class Watcher(threading.Thread):
    """Looks at the ends that readers are told, all the time."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._address, self.stops = bootstrap, threading.Event()
        self.looks = 0
        self.parts: set[tuple[MessageQueue, int]] = set()
        """Ends within a publication."""

    def run(self) -> None:
        with Client(self._address) as client:
            consumer = client.pull_consumer("readers")
            while not self.stops.wait(0.002):
                for shard in SHARDS:
                    for queue_id in range(QUEUES):
                        queue = MessageQueue(TOPIC, shard, queue_id)
                        with contextlib.suppress(ClientError):
                            end = consumer.max_offset(queue)
                            self.looks += 1
                            if end % (PARTS // QUEUES * ROWS):
                                self.parts.add((queue, end))


def publish(bootstrap: str, batch: MicroBatch, attempt: str, parts: dict[str, int]) -> None:
    """Publish from a driver of its own, whoever dies meanwhile."""
    with Client(bootstrap) as client:
        patiently(client.producer().publish_staged, batch, TOPIC, {attempt: parts})


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", SHARDS)
def test_a_publication_whose_master_is_killed_is_whole_and_once(
    cluster: tuple[ServerProcess, str], victim: str
) -> None:
    server, bootstrap = cluster
    rng, kills, whole = Random(f"publish {victim}"), 0, PARTS * ROWS
    with Client(bootstrap) as client:
        patiently(lambda: client.admin.create_topic(TOPIC, queues=QUEUES))
        watcher = Watcher(bootstrap)
        watcher.start()
        for number in range(ROUNDS):
            batch = MicroBatch("sink", number)
            stage(client, batch, "lost")
            parts = stage(client, batch, "counts")
            driver = threading.Thread(target=publish, args=(bootstrap, batch, "counts", parts))
            master = master_of(server, client, victim)
            driver.start()
            time.sleep(rng.uniform(0.0, 0.06))
            if master is not None:
                master.kill()
                kills += 1
            driver.join(SECONDS_MAX)
            assert not driver.is_alive(), "it is never published"
            for shard in SHARDS:
                found = patiently(seen, client, shard)
                assert found == {(n, "counts"): whole for n in range(number + 1)}, shard
            wait_until(
                lambda: master_of(server, client, victim) is not None,
                what="a master again",
                seconds_max=SECONDS_MAX,
            )
    watcher.stops.set()
    assert watcher.looks
    assert watcher.parts == set()
    assert kills >= ROUNDS - 1
