"""The everyday tasks of docs/tasks.md, one after the other, each by its command."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tomllib
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.conftest import Done

from imago_cli.clusters.admin_http import ask
from imago_cli.clusters.client import PATH
from imago_wire.remoting.texts.trace import FIELDS, TraceRecord, encode_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.tasks.conftest import Shell, TwoShards

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

FILE = Path(__file__).with_name("tasks.toml")
TASKS: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["task"]
MEASURES = "IMAGO_REWRITE" in os.environ
"""Whether each command is a process whose seconds of CPU are written down."""
ID, CLIENT, LATER = "ID", "CLIENT", "the id of a message that waits"
TASKS_MIN = 30


@pytest.fixture(scope="module")
def known(two_shards: TwoShards) -> dict[str, str]:
    """What the tasks find: a message on each shard, one that waits, a group that has read none."""
    from imago_client import Message, MessageQueue, ResetTo
    from imago_client.blocking import Client

    with Client(two_shards.running.ready["namesrv"]) as client:
        client.admin.create_topic("orders", queues=1)
        producer = client.producer()
        first = producer.send(
            Message("orders", b"first", keys=("order-1",)),
            queue=MessageQueue("orders", "shard-0", 0),
        )
        producer.send(Message("orders", b"second"), queue=MessageQueue("orders", "shard-1", 0))
        later = producer.send(Message("orders", b"later", delay_ms=3_600_000))
        told = {"timeStamp": "1", "groupName": "clerks", "msgId": first.message_id}
        trace = encode_trace([TraceRecord("Pub", dict.fromkeys(FIELDS["Pub"], "") | told)])
        producer.send(Message("RMQ_SYS_TRACE_TOPIC", trace, keys=(first.message_id,)))
        client.admin.reset_group("billing", "orders", ResetTo.EARLIEST)
    return {ID: first.message_id, LATER: later.message_id}


@contextmanager
def a_client(two_shards: TwoShards) -> Iterator[str]:
    """Give the name of a client that is connected, and has not ended a transaction."""
    from imago_client import Decision, Message
    from imago_client.blocking import Client

    with Client(two_shards.running.ready["namesrv"]) as client:
        producer = client.transaction_producer("clerks", lambda _: Decision.UNKNOWN)
        producer.begin(Message("orders", b"half"))
        (found,) = ask(two_shards.brokers[0]["admin"], f"{PATH}?group=clerks")["items"]
        yield found["name"]


def typed(text: str, known: dict[str, str]) -> tuple[bytes, list[str]]:
    """Return what a command gets on standard input, and its words."""
    before, pipe, command = text.rpartition(" | imago ")
    words = shlex.split(command if pipe else text)
    given = subprocess.run(["bash", "-c", before], capture_output=True, check=True).stdout
    return given, [known.get(word, word) for word in words if word != "imago"]


@pytest.fixture(scope="module")
def seconds() -> Iterator[dict[str, float]]:
    """What each command was measured to cost, which is written down at the end."""
    found: dict[str, float] = {}
    yield found
    text = FILE.read_text(encoding="utf-8")
    for say, cost in found.items():
        start = text.index(f"say = {json.dumps(say)}")
        end = text.find("[[task]]", start) % (len(text) + 1)
        task = re.sub(r"seconds = .*\n", "", text[start:end])
        task = re.sub(r"(?m)^peers = ", f"seconds = {cost:.2f}\npeers = ", task)
        text = text[:start] + task + text[end:]
    FILE.write_text(text, encoding="utf-8")


def measured(shell: Shell, words: list[str], given: bytes) -> tuple[Done, float]:
    """Run a command as a process; return how it ended, and what it cost."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-m", "imago_cli", *words],
        env=os.environ | shell.cluster.environment,
        input=given, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode()), cost


def test_there_are_enough_of_them_and_none_needs_two_commands() -> None:
    assert len(TASKS) >= TASKS_MIN
    for task in TASKS:
        assert task["type"].count("imago ") == 1, task
        assert (len(task["peers"]), task["seconds"] > 0) == (4, True), task


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["say"])
def test_a_task_is_done_by_its_command(
    shell: Shell,
    known: dict[str, str],
    task: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: dict[str, float],
) -> None:
    monkeypatch.chdir(tmp_path)
    with a_client(shell.cluster) if task.get("client") else nullcontext("") as client:
        meant = known[LATER] if task.get("later") else known[ID]
        given, words = typed(task["type"], {ID: meant, CLIENT: client})
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        if MEASURES:
            ended, seconds[task["say"]] = measured(shell, words, given)
        else:
            ended = shell.run(*words)
    assert ended.returncode == task.get("code", 0), ended
    for part in task.get("shows", ()):
        assert part in ended.stdout + ended.stderr, (part, ended)
