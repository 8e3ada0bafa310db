"""`imago produce --transaction`, killed: readers see all of its messages, or none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

from imago_client.blocking import Client
from imago_testing.processes.servers import wait_until
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from tests.cli.tasks.conftest import TwoShards

pytestmark = pytest.mark.processes

TOPIC = "transfers"
MESSAGES = [f"message {n}" for n in range(24)]
KILLED = """
import os, signal, sys
from imago_cli.main import main
from imago_client.rocketmq.connection import Connection

moment, done, flush = int(sys.argv.pop(1)), 0, Connection._flush

def flushed(self):
    global done
    wrote = bool(self._outgoing)
    flush(self)
    done += wrote
    if wrote and done == moment:  # the request is in the kernel's hands, its answer is not
        os.kill(os.getpid(), signal.SIGKILL)

Connection._flush = flushed
try:
    main()
finally:
    print("requests", done, file=sys.stderr)
"""
"""The command; it kills itself once it has written so many requests, 0: never."""
ORDINARY, SEEDS = 6, 30


def produce(cluster: TwoShards, moment: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(moment), "produce", TOPIC, *MESSAGES, "--transaction"],
        env=os.environ | cluster.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def requests(two_shards: TwoShards) -> int:
    """How many requests a whole run writes; the last one publishes."""
    with Client(two_shards.environment["IMAGO_BOOTSTRAP"]) as client:
        client.admin.create_topic(TOPIC)
    whole = produce(two_shards, 0)
    assert whole.returncode == 0, whole.stderr
    assert f"{len(MESSAGES)} sent" in whole.stderr
    assert readable(two_shards) == len(MESSAGES)
    return int(whole.stderr.rpartition("requests ")[2])


def readable(cluster: TwoShards) -> int:
    with Client(cluster.environment["IMAGO_BOOTSTRAP"]) as client:
        return sum(one.max_offset - one.min_offset for one in client.admin.topic_bounds(TOPIC))


@pytest.mark.parametrize("seed", seldom(range(SEEDS), ORDINARY))
def test_all_or_none_is_read_of_what_a_killed_command_sent(
    two_shards: TwoShards, requests: int, seed: int
) -> None:
    moment = requests if seed == 0 else Random(seed).randint(1, requests)
    before = readable(two_shards)
    assert produce(two_shards, moment).returncode == -signal.SIGKILL
    looks = [readable(two_shards) - before for _ in range(5)]
    assert set(looks) <= {0, len(MESSAGES)}
    if moment == requests:
        wait_until(
            lambda: readable(two_shards) - before == len(MESSAGES),
            seconds_max=50,
            what="all that was published is there",
        )


def test_after_an_error_nothing_is_read(two_shards: TwoShards, requests: int) -> None:
    assert requests
    before = readable(two_shards)
    ended = subprocess.run(
        [sys.executable, "-m", "imago_cli", "produce", TOPIC, "--transaction", "--json-records"],
        input='{"body": "a"}\n' * 3 + "no record\n",
        env=os.environ | two_shards.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 2
    assert "3 messages rolled back: nobody reads them" in ended.stderr
    assert " sent" not in ended.stdout + ended.stderr
    assert readable(two_shards) == before
