"""The ingest application as a process: killed, stopped, shut out, and run again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from imago_client import Message, batches
from imago_spark.pipelines.tables.table import TableWriter
from imago_testing import traces
from imago_testing.clusters.pipelines import allow, record
from imago_testing.processes.servers import ServerProcess, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

FENCED = 5
SECONDS_MAX = 200


@dataclass
class Rig:
    """A table to be, and what runs on it."""

    cluster: str
    folder: Path
    topic: str

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def command(self, *more: str, checkpoint: str = "checkpoint", **config: object) -> list[str]:
        """Return the command line of a run with this configuration."""
        pipeline = f'pipeline = "{self.topic}"\n' if "--epoch" in more else ""
        lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in config.items())
        file = self.folder / "pipeline.toml"
        file.write_text(
            f'bootstrap = "{self.cluster}"\ntopics = ["{self.topic}"]\n{pipeline}'
            f'path = "{self.lake}"\ncheckpoint = "{self.folder / checkpoint}"\n'
            f'groupName = "lake"\nmaxRowsPerTrigger = 500\n[config]\n{lines}\n'
        )
        program = [sys.executable, "-m", "imago_spark.pipelines.ingest", "--short", "--cores", "1"]
        return [*program, "--memory", "512m", "--config", str(file), *more]

    def run(self, *more: str, **config: Any) -> tuple[int, Any]:
        """Run to the end of what is there; return the exit code, and what was printed."""
        config = {"trigger": "available-now", **config}
        ended = subprocess.run(
            self.command(*more, **config), capture_output=True, text=True, timeout=240, check=False
        )
        sys.stderr.write(ended.stderr[-4000:])
        assert ended.returncode or traces.in_text(ended.stderr) == []
        return ended.returncode, json.loads(ended.stdout) if ended.stdout else None

    def commits(self) -> int:
        last = TableWriter(self.lake).read_last()
        return 0 if last is None else last.number

    def places(self) -> Counter[tuple[str, int, int]]:
        """Return how often each offset of each queue is in the table, for any reader."""
        found: Counter[tuple[str, int, int]] = Counter()
        for file in self.lake.glob("date=*/*.parquet"):
            table = pq.read_table(file, columns=["shard", "queue", "offset"], partitioning=None)
            found.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return found


@pytest.fixture
def rig(cluster: str, client: Client, tmp_path: Path, request: pytest.FixtureRequest) -> Rig:
    topic = re.sub("[^a-z0-9]+", "-", request.node.name)[-60:]
    client.admin.create_topic(topic, queues=2)
    return Rig(cluster, tmp_path, topic)


def fill(client: Client, topic: str, rows: int) -> None:
    messages = [Message(topic, b"%06d" % number) for number in range(rows)]
    producer = client.producer()
    for batch in batches(messages, bytes_max=20_000):
        producer.send_batch(batch)


def test_a_dry_run_says_what_a_run_would_bring_and_writes_nothing(rig: Rig, client: Client) -> None:
    fill(client, rig.topic, 300)
    code, told = rig.run("--dry-run")
    assert (code, told["rows"], told["before"]) == (0, 300, 0)
    assert told["topics"] == {rig.topic: 300}
    assert told["bytes"] > 300 * len(b"000000")
    assert not rig.lake.exists()
    assert rig.run()[0] == 0
    fill(client, rig.topic, 20)
    stands = rig.commits()
    code, told = rig.run("--dry-run")
    assert (code, told["rows"], told["before"]) == (0, 20, 300)
    assert rig.commits() == stands, "a run that writes is not shut out by it"


def wait_for(process: ServerProcess, what: Callable[[], bool]) -> None:
    """Wait for a fact while a process lives."""

    def holds() -> bool:
        assert process.process.poll() is None, process.log_tail()
        return what()

    wait_until(holds, seconds_max=SECONDS_MAX, what=process.log_tail())


def assert_each_once(rig: Rig, rows: int) -> None:
    places = rig.places()
    assert set(places.values()) == {1}
    assert len(places) == rows
    last = TableWriter(rig.lake).read_last()
    assert last is not None
    assert last.rows == rows
    assert sum(last.ends.values()) == rows


@pytest.mark.traces_wanted  # of the kill alone: a JVM without its driver may print where it was
def test_killed_driver_leaves_each_row_once(rig: Rig, client: Client) -> None:
    fill(client, rig.topic, 2500)
    first = ServerProcess.start("ingest", rig.command(trigger="available-now"), rig.folder)
    wait_for(first, lambda: rig.commits() >= 3)
    assert not (found := traces.traces([rig.folder])), "\n\n".join(found)
    first.kill()
    assert rig.commits() < 6, "it was killed before it was done"
    code, told = rig.run()
    assert (code, told["rows"], told["damaged"]) == (0, 2500, 0)
    assert_each_once(rig, 2500)
    # Another checkpoint goes on where the table ends, under the epoch that nobody has raised yet.
    fill(client, rig.topic, 100)
    code, told = rig.run("--epoch", "0", checkpoint="another")
    assert (code, told["rows"]) == (0, 2600)
    assert_each_once(rig, 2600)
    read = client.pull_consumer("lake")
    ends = [read.committed(queue) for queue in read.queues(rig.topic)]
    assert sum(end or 0 for end in ends) == 2600


@pytest.mark.traces_wanted  # of the run that is shut out: Spark prints where it ended
@pytest.mark.full
def test_run_stops_in_order_and_is_shut_out_by_the_next(rig: Rig, client: Client) -> None:
    allow(rig.cluster, rig.topic, 1)
    assert record(rig.cluster, rig.topic)["progress"] is None
    fill(client, rig.topic, 300)
    steady: dict[str, Any] = {"trigger": "continuous", "triggerSeconds": 1, "progressSeconds": 1}
    command = rig.command("--epoch", "1", **steady)
    with running(ServerProcess.start("first", command, rig.folder)) as first:
        wait_for(first, lambda: bool(rig.places()))
        fill(client, rig.topic, 200)
        wait_for(
            first, lambda: (record(rig.cluster, rig.topic)["progress"] or {}).get("rows") == 500
        )
        assert first.stop(seconds_max=SECONDS_MAX) == 0
    told = record(rig.cluster, rig.topic)["progress"]
    assert (told["rows"], told["lag"]) == (500, 0)
    allow(rig.cluster, rig.topic, 2)
    assert rig.run("--epoch", "1")[0] == FENCED, "a run that is over does not start"
    command = rig.command("--epoch", "2", **steady)
    with running(ServerProcess.start("second", command, rig.folder)) as second:
        fill(client, rig.topic, 100)
        wait_for(second, lambda: len(rig.places()) == 600)
        allow(rig.cluster, rig.topic, 3)
        assert second.process.wait(SECONDS_MAX) == FENCED, second.log_tail()
    fill(client, rig.topic, 50)
    assert_each_once(rig, 600)


def compare(rig: Rig) -> dict[str, Any]:
    """Return what the audit says of the table, row by row."""
    program = [sys.executable, "-m", "imago_spark.pipelines.audit", "--short", "--cores", "1"]
    command = [
        *program,
        "--memory",
        "512m",
        "--deep",
        "--config",
        str(rig.folder / "pipeline.toml"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    sys.stderr.write(ended.stderr[-4000:])
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def ends_with(process: psutil.Process, word: str) -> bool:
    """Whether a program was started with a word at last; one that has just ended was not."""
    try:
        return bool(process.cmdline()[-1:] == [word])
    except psutil.Error:
        return False


def workers(process: ServerProcess) -> list[psutil.Process]:
    """Return the Python workers of a run's tasks."""
    below = psutil.Process(process.process.pid).children(recursive=True)
    daemons = [one for one in below if ends_with(one, "pyspark.worker")]
    return [one for one in daemons if one.ppid() in {each.pid for each in daemons}]


@pytest.mark.traces_wanted  # of the kills: Spark prints where it was
@pytest.mark.parametrize("killed", ["driver", "worker"])
def test_ranges_land_each_row_once_whoever_is_killed(rig: Rig, client: Client, killed: str) -> None:
    fill(client, rig.topic, 2500)
    how = {"landing": "ranges", "format": "delta"}
    command = rig.command(trigger="available-now", **how)
    first = ServerProcess.start("ingest", command, rig.folder)
    wait_for(first, lambda: rig.commits() >= 2)
    if killed == "driver":
        first.kill()
    else:
        for one in workers(first):
            one.kill()
        assert first.process.wait(SECONDS_MAX) in (0, 1)  # 0: it was between two batches
    assert rig.commits() < 6, "it was killed before it was done"
    code, told = rig.run(**how)
    assert (code, told["rows"], told["damaged"]) == (0, 2500, 0)
    assert_each_once(rig, 2500)
    # As a stream writes it: row by row, and for whoever reads it.
    assert compare(rig) | {"list": []} == {
        "rows": 2500, "damaged": 0, "queues": 2, "behind": 0, "compared": 2500,
        "differences": 0, "list": [], "topics": {rig.topic: {"messages": 2500, "rows": 2500}},
    }  # fmt: skip
    seen = DeltaTable(rig.lake).to_pyarrow_table(columns=["queue", "offset"])
    assert len(set(map(tuple, zip(*seen.to_pydict().values(), strict=True)))) == len(seen) == 2500


@pytest.mark.full
def test_a_stream_goes_on_where_ranges_ended_and_ranges_where_it_did(
    rig: Rig, client: Client
) -> None:
    for way, rows in (("stream", 400), ("ranges", 800), ("stream", 1200)):
        fill(client, rig.topic, 400)
        code, told = rig.run(landing=way, checkpoint=f"checkpoint-{rows}")
        assert (code, told["rows"]) == (0, rows)
        assert_each_once(rig, rows)


LATE_PYTHON = """
import os, pathlib, sys, time
is_planner = "pyspark.sql.streaming.python_streaming_source_runner" in sys.orig_argv
if is_planner and not (seen := pathlib.Path(os.environ["LATE_ONCE"])).exists():
    seen.touch()
    time.sleep(15)
"""
"""What Python runs first: the one that plans micro-batches is too late for Spark, once."""


@pytest.mark.full
def test_a_python_that_comes_too_late_ends_no_run(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rig.folder / "sitecustomize.py").write_text(LATE_PYTHON)
    monkeypatch.setenv("PYTHONPATH", str(rig.folder))
    monkeypatch.setenv("LATE_ONCE", str(rig.folder / "late"))
    fill(client, rig.topic, 300)
    code, told = rig.run()
    assert (rig.folder / "late").exists(), "no planner started"
    assert (code, told["rows"]) == (0, 300)
    assert_each_once(rig, 300)
