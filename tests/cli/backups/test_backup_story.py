"""A running cluster is backed up, lost, and restored, with kills in the middle; with processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from imago_client import Message
from imago_client.blocking import Client
from imago_client.blocking.metaq import MetaqClient
from imago_client.errors import ClientError
from imago_log.offline.check import Severity, check
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import command, up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from imago_testing.processes.up import Up

pytestmark = pytest.mark.processes

PORTS = 40
BODY = b"x" * 200_000
OFFSET = "/meta/consumers/readers/offsets/orders/0-0"
FIRST = 80
"""Messages of this size: several files of the log, so that a restore takes a moment."""


def imago(*words: str, code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "imago_cli", *words],
        env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


class Sending:
    """Producers of both protocols, without retries, who note what was acknowledged."""

    def __init__(self, running: Up) -> None:
        self._namesrv = running.ready["namesrv"]
        self._metaq = ",".join(each["metaq"] for each in running.ready["brokers"])
        self.acked: list[bytes] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._rocketmq, self._texts)]

    def __enter__(self) -> Sending:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _rocketmq(self) -> None:
        with Client(self._namesrv) as client:
            producer, number = client.producer(), 0
            while not self._stop.wait(0.01):
                body = b"rocketmq %d" % number
                number += 1
                with suppress(ClientError):
                    producer.send(Message("orders", body))
                    self.acked.append(body)

    def _texts(self) -> None:
        with MetaqClient(self._metaq) as client:
            number = 0
            while not self._stop.wait(0.01):
                body = b"metaq %d" % number
                number += 1
                with suppress(ClientError):  # also: this one is not the master
                    client.send("orders", body)
                    self.acked.append(body)


def bodies(running: Up) -> list[bytes]:
    out = imago("consume", "orders", "--json", "--bootstrap", running.ready["namesrv"])
    return [json.loads(line)["body"].encode() for line in out.splitlines()]


@contextmanager
def zookeeper_of(running: Up) -> Iterator[KazooClient]:
    client = KazooClient(hosts=running.ready["zookeeper"])
    client.start()
    yield client
    client.stop()
    client.close()


def kill_once(words: list[str], when: Callable[[], bool]) -> None:
    """Run a command and kill it, without a word, as soon as something holds."""
    process = subprocess.Popen([sys.executable, "-m", "imago_cli", *words])
    wait_until(lambda: when() or process.poll() is not None, what="it")
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was done before it could be killed"


def fill(running: Up) -> None:
    names = running.ready["namesrv"]
    imago("topic", "create", "orders", "--queues", "1", "--bootstrap", names)
    with Client(names) as client:
        producer = client.producer()
        for _ in range(FIRST):
            producer.send(Message("orders", BODY))
    imago("consume", "orders", "--group", "billing", "--count", "50", "--bootstrap", names)
    with zookeeper_of(running) as tree:
        tree.create(OFFSET, b"77-200020", makepath=True)


def test_lost_and_restored(tmp_path: Path) -> None:
    bucket = f"file://{tmp_path}/bucket"
    first = tmp_path / "first"
    first.mkdir()
    options = ["--replicas", "2", "--port-base", str(free_port_block(PORTS))]
    with up(first / "data", *options, "--set", f"backup.url={bucket}") as running:
        admin = running.ready["brokers"][0]["admin"]
        fill(running)
        with Sending(running) as sending:
            wait_until(lambda: len(sending.acked) > 20, what="it")
            before = list(sending.acked)
            shown = json.loads(imago("backup", "create", "one", "--json", "--admin", admin))
            wait_until(lambda: len(sending.acked) > len(before) + 20, what="it")
        part = shown["shards"]["shard-0"]
        assert part["member"] != _master(admin), "a follower in sync does it"
        again = json.loads(imago("backup", "create", "two", "--json", "--admin", admin))
        assert again["shards"]["shard-0"]["bytesSent"] < len(BODY) * FIRST / 2, "the rest is shared"
        everything = bodies(running)
        assert {*sending.acked} <= {*everything}
    shutil.rmtree(first)  # the site is lost
    _restore_and_look(tmp_path, bucket, before, everything)


def _master(admin: str) -> str:
    status = json.loads(imago("cluster", "status", "--json", "--admin", admin))
    return str(status["shards"][0]["master"])


def _restore_and_look(
    tmp_path: Path, bucket: str, before: list[bytes], everything: list[bytes]
) -> None:
    assert "everything is whole" in imago("backup", "verify", "one", "--from", bucket)
    second = tmp_path / "second" / "data"
    words = ["backup", "restore", "one", "--from", bucket, "--to", str(second)]
    mark = second / "shard-0" / "restoring"
    kill_once(words, mark.exists)
    assert mark.exists()
    refused = subprocess.run(
        command(second, "--zookeeper", "none", "--no-restart", "--port-base",
                str(free_port_block(PORTS))),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode != 0
    assert "not restored to its end" in refused.stderr
    imago(*words)
    found = list(check(second / "shard-0"))
    assert [each for each in found if each.severity is Severity.ERROR] == []
    assert "already" in _stderr(*words, "--once")
    with up(second, "--port-base", str(free_port_block(PORTS))) as running:
        restored = bodies(running)
        assert restored == everything[: len(restored)], "the cut is a prefix, in order"
        assert {*before} <= {*restored}
        names = running.ready["namesrv"]
        one = imago("consume", "orders", "--group", "billing", "--count", "1", "--json",
                    "--bootstrap", names)  # fmt: skip
        assert json.loads(one)["offset"] == 50
        with zookeeper_of(running) as tree:
            wait_until(lambda: tree.exists(OFFSET) is not None, what="it")
            assert tree.get(OFFSET)[0].endswith(b"-200020")
        with Client(names) as client:  # it goes on
            client.producer().send(Message("orders", b"after"))
        assert bodies(running)[-1] == b"after"


def _stderr(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "imago_cli", *words],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_damaged_bucket(tmp_path: Path) -> None:
    base, bucket = free_port_block(PORTS), f"file://{tmp_path}/bucket"
    options = ["--zookeeper", "none", "--port-base", str(base), "--set", f"backup.url={bucket}"]
    with up(tmp_path / "data", *options) as running:
        admin, names = running.ready["brokers"][0]["admin"], running.ready["namesrv"]
        imago("produce", "orders", "a message", "--create", "--count", "100", "--bootstrap", names)
        imago("backup", "create", "one", "--admin", admin)
        assert "one" in imago("backup", "list", "--admin", admin)
        assert "shard-0" in imago("backup", "show", "one", "--admin", admin)
        imago("backup", "create", "two", "--admin", admin)
        imago("backup", "create", "three", "--admin", admin)
        pruned: Any = json.loads(
            imago("backup", "prune", "--keep", "1", "--yes", "--json", "--admin", admin)
        )
        assert pruned["deleted"] == ["two", "one"]
        assert "one" not in imago("backup", "list", "--from", bucket)
        imago("backup", "show", "one", "--admin", admin, code=1)
    chunk = next((tmp_path / "bucket" / "chunks" / "shard-0").iterdir())
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    out = json.loads(imago("backup", "verify", "--from", bucket, "--json", code=3))
    assert (out["backup"], out["ok"]) == ("three", False)
    assert out["findings"][0]["object"].endswith(chunk.name)
    assert 0 < out["findings"][0]["position"] <= len(data) // 2
    imago("backup", "restore", "--from", bucket, "--to", str(tmp_path / "new"), code=3)
    imago("backup", "verify", "four", "--from", bucket, code=1)
    imago("backup", "restore", "--from", "ftp://x", "--to", str(tmp_path / "new"), code=2)
