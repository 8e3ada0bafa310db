"""Ingest, parse, aggregate and audit as an operator starts them, killed and without checkpoints.

The command lines and files are those that ImagoPipelines are rendered to; what Kubernetes and Spark
do beside them is left out: each run is a process of this machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.parquet as pq
import pytest

from imago_client import Message, batches
from imago_operator.model.desired import OperatorInfo
from imago_operator.pipelines import config, render
from imago_operator.pipelines.desired import DesiredPipeline, desired_pipeline
from imago_operator.spec.kinds import PIPELINE
from imago_spark.broker import TopicBrokers
from imago_spark.options import parse_options
from imago_spark.pipelines.tables.table import TableWriter
from imago_testing import traces
from imago_testing.clusters.pipelines import allow
from imago_testing.processes.servers import ServerProcess, wait_until

if TYPE_CHECKING:
    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.full]

ROOT = Path(__file__).parents[2]
SCHEMA = "id bigint, customer string, amount bigint, at timestamp"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECONDS_MAX = 200


@dataclass
class Pipelines:
    """ImagoPipelines of one topic, whose runs are processes."""

    cluster: str
    folder: Path
    topic: str
    epoch: int = 0

    def table(self, name: str) -> Path:
        return self.folder / name

    def checkpoint(self, name: str) -> Path:
        return self.folder / f"{name}-checkpoint"

    def _desired(self, name: str, application: str, said: dict[str, Any]) -> DesiredPipeline:
        spec: dict[str, Any] = {
            "clusterRef": {"name": "demo"},
            "source": {"topics": [self.topic], "maxRowsPerTrigger": 150},
            "config": {"trigger": "available-now", **said},
            "checkpoint": {"claim": {}},
        }
        path = str(self.table(name))
        if application == "ingest":
            spec["ingest"] = {"path": path}
        else:
            words = ["--deep"] if application == "audit" else []
            spec["application"] = {"name": application, "path": path, "args": words}
        made: dict[str, Any] = {"metadata": {"name": name, "namespace": "data", "uid": "u"}}
        made |= {"apiVersion": "imago.dev/v1alpha1", "kind": PIPELINE.name, "spec": spec}
        assert list(PIPELINE.problems(made)) == []
        return desired_pipeline(made, OperatorInfo(version="0.2.0"))

    def command(self, name: str, application: str, **said: Any) -> list[str]:
        """Return the command of the next run of a pipeline, whose epoch brokers know."""
        desired = self._desired(name, application, said)
        self.epoch += 1
        allow(self.cluster, desired.fence, self.epoch)
        args = render.job(desired, self.epoch)["spec"]["template"]["spec"]["containers"][0]["args"]
        first = next(at for at, word in enumerate(args) if word.startswith("local://"))
        file = self.folder / f"{name}.toml"
        text = config.pipeline_file(desired).replace(desired.bootstrap, self.cluster)
        file.write_text(text.replace('"/checkpoint"', json.dumps(str(self.checkpoint(name)))))
        program = ROOT / "spark-apps" / args[first].rpartition("/")[2]
        own = [str(file) if word.startswith(config.FOLDER) else word for word in args[first + 1 :]]
        return [sys.executable, str(program), *own, "--short", "--cores", "1", "--memory", "512m"]

    def run(self, name: str, application: str, **said: Any) -> dict[str, Any]:
        """Run it to its end; return what it prints."""
        command = self.command(name, application, **said)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert ended.returncode == 0, ended.stderr[-4000:] + ended.stdout
        told: dict[str, Any] = json.loads(ended.stdout)
        return told

    def killed(self, name: str, application: str, commits: int, **said: Any) -> None:
        """Run it, and kill its driver once its table has so many commits."""
        command = self.command(name, application, **said)
        process = ServerProcess.start(name, command, self.folder)
        watched = self.table(name) / ("_imago/input" if application == "aggregate" else "")

        def reached() -> bool:
            assert process.process.poll() is None, process.log_tail()
            last = TableWriter(watched).read_last()
            return last is not None and last.number >= commits

        wait_until(reached, seconds_max=SECONDS_MAX, what=process.log_tail())
        assert not (found := traces.traces([self.folder])), "\n\n".join(found)
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for one in below:  # as with a pod: the JVM, which would write on for a moment
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(below, SECONDS_MAX)


PARSE = {"schema": SCHEMA, "required": "id"}
FIGURES = PARSE | {"by": "customer", "time": "at", "window": "1m", "delay": "0s"}
FIGURES |= {"measures": "count, sum(amount)"}


def fill(client: Client, topic: str, first: int, last: int) -> None:
    """Send one event a second after noon, with every hundredth no event."""
    bodies = []
    for number in range(first, last):
        at = (NOON + timedelta(seconds=number)).isoformat()
        event = {"id": number, "customer": f"c{number % 3}", "amount": number, "at": at}
        bodies.append(b"no event" if number % 100 == 50 else json.dumps(event).encode())
    producer = client.producer()
    for batch in batches([Message(topic, body) for body in bodies], bytes_max=20_000):
        producer.send_batch(batch)


def wanted_figures(last: int, minutes: int) -> Counter[tuple[int, str]]:
    """Return how many events each minute and customer has."""
    found: Counter[tuple[int, str]] = Counter()
    for number in range(last):
        if number % 100 != 50 and number // 60 < minutes:
            found[number // 60, f"c{number % 3}"] += 1
    return found


def figures_in(path: Path) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for file in path.glob("date=*/*.parquet"):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            minute = int((row["window_start"].replace(tzinfo=UTC) - NOON).total_seconds()) // 60
            assert (minute, row["customer"]) not in found
            found[minute, row["customer"]] = row["count"]
    return found


@pytest.mark.traces_wanted  # of the kills alone: a JVM without its driver may print where it was
def test_killed_drivers_and_lost_checkpoints_leave_no_difference(
    cluster: str, client: Client, tmp_path: Path
) -> None:
    client.admin.create_topic("story", queues=2)
    client.admin.create_topic("story-1m", queues=1)
    story = Pipelines(cluster, tmp_path, "story")
    figures = FIGURES | {"topic": "story-1m"}
    fill(client, "story", 0, 600)
    for name, application, said in (
        ("lake", "ingest", {}),
        ("parsed", "parse", PARSE),
        ("figures", "aggregate", figures),
    ):
        story.killed(name, application, 2, **said)
        shutil.rmtree(story.checkpoint(name))
    fill(client, "story", 600, 700)
    assert story.run("lake", "ingest")["rows"] == 700
    parsed = story.run("parsed", "parse", **PARSE)
    assert parsed["rows"] == 700
    told = story.run("figures", "aggregate", **figures)
    assert (told["late"], told["untimed"], told["unsent"]) == (0, 0, 0)
    assert figures_in(story.table("figures")) == wanted_figures(700, minutes=11)
    others = f"{story.table('parsed')}, {story.table('figures')}"
    report = story.run("lake", "audit", tables=others)
    assert report["differences"] == 0, report
    assert [one["rows"] for one in report["tables"].values()] == [700, 700, 33]
    of_lake = report["tables"][str(story.table("lake"))]
    assert of_lake["topics"] == {"story": {"messages": 700, "rows": 700}}
    assert (of_lake["compared"], of_lake["damaged"]) == (700, 0)
    brokers = TopicBrokers(parse_options({"bootstrap": cluster, "subscribe": "story-1m"}))
    assert sum(brokers.latest(brokers.queues()).values()) == 33, "each figure was sent once"
