"""Every Python block of the README and of docs/ compiles, and runs against a broker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml

from imago_client import Message
from imago_operator.model.desired import OperatorInfo
from imago_operator.pipelines.config import pipeline_file
from imago_operator.pipelines.desired import desired_pipeline
from imago_spark.pipelines import dlq_triage, lag_latency, parse, settings, topic_stats
from imago_spark.pipelines.aggregate import windows
from imago_spark.pipelines.compact import compacting
from imago_spark.pipelines.replay import slices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from imago_client.blocking import Client

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^ *```(?:python|py)\b[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
SECONDS_MAX = 60
NAME_SERVICE, METAQ = "127.0.0.1:9876", "127.0.0.1:8123,127.0.0.1:8124"


class Block(NamedTuple):
    page: str
    line: int
    code: str

    @property
    def needs_spark(self) -> bool:
        return bool(re.search(r"\b(spark|frame)\.", self.code))

    @property
    def needs_zookeeper(self) -> bool:
        """Run by `tests/client/metaq/test_metaq_documented.py`."""
        return "127.0.0.1:2181" in self.code

    @property
    def needs_user(self) -> bool:
        """Run by `tests/cli/test_tutorial.py`, which makes the page's users first."""
        return "password_file=" in self.code

    @property
    def runs_elsewhere(self) -> bool:
        """Run by `tests/client/test_moving_documented.py`; the like of RocketMQ's own SDK by
        `tests/interop/test_sdks.py`.
        """
        return self.page == "docs/client-moving.md" or "from rocketmq import" in self.code

    def against(self, cluster: str) -> str:
        """Return the code with the test's addresses; any other address is a mistake."""
        host, _, base = cluster.rpartition(":")
        known = {NAME_SERVICE: cluster, METAQ: f"{host}:{int(base) + 11}"}
        code = self.code
        for documented, own in known.items():
            code = code.replace(documented, own)
        strange = set(_ADDRESS.findall(code)) - set(known.values())
        assert not strange, f"{self}: {strange} stand for nothing"
        return code

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks() -> list[Block]:
    found = []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            found.append(Block(str(path.relative_to(ROOT)), line, match[1]))
    return found


BLOCKS = blocks()
PROGRAMS = [
    one
    for one in BLOCKS
    if not (one.needs_spark or one.needs_zookeeper or one.needs_user or one.runs_elsewhere)
]


def test_no_block_is_overlooked() -> None:
    fences = sum(
        line.strip().startswith(("```py", "~~~py"))
        for path in pages()
        for line in path.read_text(encoding="utf-8").splitlines()
    )
    assert len(BLOCKS) == fences
    assert {block.page for block in BLOCKS} >= {"README.md", "docs/clients.md", "docs/spark.md"}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_compiles(block: Block) -> None:
    compile(block.code, str(block), "exec")


@pytest.mark.usefixtures("spark")  # reads a schema's DDL
def test_configurations_of_the_pipelines_are_taken(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    ingests, by_ranges, in_bucket, parses, figures, replays, compacts, stats = re.findall(
        r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )
    (tmp_path / "ingest.toml").write_text(ingests)
    assert settings.load(tmp_path / "ingest.toml", None).topics == ("orders",)
    with_config = ingests.replace("[config]\n", by_ranges)
    (tmp_path / "ingest.toml").write_text(with_config)
    assert settings.load(tmp_path / "ingest.toml", None).delta
    (tmp_path / "bucket.toml").write_text(in_bucket)
    given = settings.load(tmp_path / "bucket.toml", None)
    assert (given.path, given.bucket is not None) == (Path("lake/orders"), True)
    (tmp_path / "parse.toml").write_text(parses)
    how = parse.of_settings(settings.load(tmp_path / "parse.toml", None, parse.OWN))
    assert (how.required, how.rejected_percent_max) == (("id", "at"), 20)
    (tmp_path / "compact.toml").write_text(compacts)
    given = settings.load(tmp_path / "compact.toml", None, compacting.OWN)
    assert given.own == {"fileBytes": 256 << 20, "filesMin": 4, "keepDays": 90}
    (tmp_path / "figures.toml").write_text(figures)
    given = settings.load(tmp_path / "figures.toml", None, windows.OWN, unneeded=("checkpoint",))
    assert list(windows.aggregation(given, how.fields).fields)[3:5] == ["count", "sum_amount"]
    (tmp_path / "stats.toml").write_text(stats)
    given = settings.load(tmp_path / "stats.toml", None, lag_latency.OWN, unneeded=("checkpoint",))
    assert lag_latency.groups_of(given) == ("billing", "shipping")
    (tmp_path / "replay.toml").write_text(replays)
    found = slices.slice_of(settings.load(tmp_path / "replay.toml", None, slices.OWN))
    assert (found.step_rows, found.rows_per_second) == (50_000, 500)


def of_sample(name: str, folder: Path, own: tuple[str, ...]) -> settings.IngestSettings:
    """Return what an application reads that the operator runs for a sample."""
    sample = yaml.safe_load((ROOT / "manifests" / "samples" / f"{name}.yaml").read_text())
    sample["metadata"]["namespace"] = "data"
    assert sample["spec"]["application"]["name"] == name
    text = pipeline_file(desired_pipeline(sample, OperatorInfo(version="0.1.0")))
    (folder / "pipeline.toml").write_text(text)
    return settings.load(folder / "pipeline.toml", 3, own)


@pytest.mark.usefixtures("spark")
def test_samples_are_what_the_applications_read(tmp_path: Path) -> None:
    wanted = of_sample("parse", tmp_path, parse.OWN)
    assert (wanted.path, wanted.epoch) == (Path("/lake/orders-parsed"), 3)
    assert list(parse.of_settings(wanted).fields) == ["id", "amount", "at", "customer"]
    parsed = parse.of_settings(wanted).fields
    of = windows.aggregation(of_sample("aggregate", tmp_path, windows.OWN), parsed)
    assert (str(of.input), of.by) == (str(wanted.path), ("id",))
    again = slices.slice_of(of_sample("replay", tmp_path, slices.OWN))
    assert (again.id, again.sink["epoch"]) == ("after-the-outage", "3")
    assert of_sample("compact", tmp_path, compacting.OWN).own == {"keepDays": 90}
    assert of_sample("report", tmp_path, parse.OWN).path == Path("/lake/orders")
    assert of_sample("audit", tmp_path, parse.OWN).path == Path("/lake/orders")
    assert of_sample("topic_stats", tmp_path, topic_stats.OWN).own == {"input": "/lake/orders"}
    lags = of_sample("lag_latency", tmp_path, lag_latency.OWN)
    assert lag_latency.groups_of(lags) == ("billing", "shipping")
    assert of_sample("dlq_triage", tmp_path, dlq_triage.OWN).topics == ("%DLQ%billing",)


def everything(client: Client, topic: str) -> list[bytes]:
    """Return the bodies of all messages of a topic."""
    consumer = client.pull_consumer("reader")
    found: list[bytes] = []
    for queue in consumer.queues(topic):
        end = consumer.max_offset(queue)
        pieces = consumer.scan(queue, consumer.min_offset(queue), end)
        found += [message.body for piece in pieces for message in piece.messages()]
    return found


@pytest.fixture
def orders(client: Client) -> str:
    """The topics that the pages write of, as their readers have made them before."""
    for topic in ("orders", "refunds"):
        client.admin.create_topic(topic, queues=8)
    client.producer().send(Message("orders", b"before", tags="new"))
    return "orders"


@pytest.mark.processes
@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_program_runs_and_sends(
    block: Block, cluster: str, client: Client, orders: str, tmp_path: Path
) -> None:
    before = len(everything(client, orders))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.against(cluster)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(everything(client, orders)) == before + 1


@pytest.mark.processes
@pytest.mark.spark
@pytest.mark.parametrize("block", [one for one in BLOCKS if one.needs_spark], ids=str)
def test_spark_block_runs(
    block: Block, spark: SparkSession, cluster: str, client: Client, orders: str
) -> None:
    before = len(everything(client, orders))
    frame = spark.createDataFrame([(1, b"one"), (2, b"two")], "id int, payload binary")
    code = compile(block.against(cluster), str(block), "exec")
    exec(code, {"spark": spark, "frame": frame})
    written = 2 if ".write" in block.code else 0
    assert len(everything(client, orders)) == before + written
