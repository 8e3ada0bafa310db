"""The aggregate application: each row of its input counts once, and each figure is sent once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imago_client.message_queue import MessageQueue
from imago_spark.pipelines import application, streaming
from imago_spark.pipelines.aggregate import aggregating
from imago_spark.pipelines.aggregate.aggregating import Figures
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PLACE = ("orders", "shard-0", 0)
QUEUE = MessageQueue(*PLACE)
FIELDS = {"customer": "string", "amount": "bigint", "at": "timestamp", "paid": "timestamp"}
"""No file has `paid` yet."""
LARGEST = (1 << 63) - 1
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("topic", "shard")),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
        ("store_time", pa.timestamp("us", tz="UTC")),
        ("customer", pa.string()),
        ("amount", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def minutes(number: float | None) -> datetime | None:
    return None if number is None else NOON + timedelta(minutes=number)


def land(table: TableWriter, stored: float, *events: tuple[str, int, float | None]) -> None:
    """Add rows as parse does: who, how much, and when, in minutes after noon."""
    start = table.last.ends.get(QUEUE, 0)
    names = SCHEMA.names
    rows = [
        dict(
            zip(names, (*PLACE, start + at, minutes(stored), *event, minutes(minute)), strict=True)
        )
        for at, (*event, minute) in enumerate(events)
    ]
    attempt = table.stage()
    file = attempt / "rejected=false" / "date=2026-11-21" / "part.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)
    name = file.relative_to(attempt.parent).as_posix()
    files = (DataFile(name, "", len(rows), file.stat().st_size),)
    landed = (Landed(QUEUE, start, start + len(rows)),)
    table.commit(StagedBatch("q", table.last.batch + 1, files, landed))


def sent(client: Client, topic: str) -> list[Any]:
    consumer = client.pull_consumer("reader")
    return [
        json.loads(message.body)
        for queue in consumer.queues(topic)
        for piece in consumer.scan(queue, 0, consumer.max_offset(queue))
        for message in piece.messages()
    ]


def dying(*_: object) -> None:
    raise KeyboardInterrupt


@dataclass(frozen=True)
class Work:
    """A table of parse, and the configuration of who aggregates it into `figures`."""

    table: TableWriter
    config: Path
    capsys: pytest.CaptureFixture[str]

    def change(self, old: str, new: str) -> None:
        text = self.config.read_text()
        assert old in text
        self.config.write_text(text.replace(old, new))

    def run(self, *more: str) -> Any:
        """Run it to its end; return what it tells."""
        assert aggregating.main(["--config", str(self.config), *more]) == 0
        return json.loads(self.capsys.readouterr().out)


@pytest.fixture
def work(
    spark: SparkSession,
    cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Work:
    monkeypatch.setattr(application, "spark", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(streaming.StopSignal, "install", lambda _: None)
    table = TableWriter(tmp_path / "lake")
    contract.claim(table, "parse", FIELDS)
    table.begin()
    config = tmp_path / "aggregate.toml"
    config.write_text(
        f'bootstrap = "{cluster}"\ntopics = ["orders"]\npath = "{tmp_path / "figures"}"\n[config]\n'
        f'trigger = "available-now"\ninput = "{tmp_path / "lake"}"\nby = "customer"\ntime = "at"\n'
        'delay = "2m"\nmeasures = "count, sum(amount), max(amount)"\n'
    )
    return Work(table, config, capsys)


def test_a_pass_that_closes_no_window_reads_what_its_writer_died_over(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:  # the run dies before it has moved what it commits
        patched.setattr(TableWriter, "_publish", lambda *_: None)
        land(work.table, 55, ("y", 1, 50), ("y", 4, 51))
    work.change('"at"', '"paid"')
    told = work.run("--dry-run")
    assert told == {"rows": 2, "late": 0, "untimed": 2, "figures": 0, "through": None}
    work.change('"paid"', '"at"')
    assert work.run() == TOLD | {"through": "2026-11-21T12:45:00+00:00"}
    assert work.run() == TOLD | {"through": "2026-11-21T12:45:00+00:00"}


def test_each_row_is_in_one_figure_and_each_figure_is_sent_once(
    work: Work, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin.create_topic("figures", queues=2)
    work.change("[config]", '[config]\ntopic = "figures"')
    # An event is no newer than its being stored: the last one, a day ahead, closes no window.
    land(
        work.table,
        60,
        *(("a", 1, 1), ("a", 2, 4.9), ("b", 5, 0), ("a", 7, 5), ("a", 0, 9), ("z", 9, 1500)),
        *(("o", LARGEST, 6), ("o", 1, 7), ("b\x01", 5, 6), ("long", 7, 6)),
        ("w", LARGEST, 6),
    )
    with monkeypatch.context() as patched:
        patched.setattr(Figures, "_send_files", dying)
        with pytest.raises(KeyboardInterrupt):
            work.run()
    assert sent(client, "figures") == []
    land(work.table, 80, ("a", 1, 2), ("a", 3, 6), ("b", 2, 56), ("b", 1, None), ("b", 4, 71))
    # What was not sent is sent as it is, whatever measures there are by now.
    work.change("max(amount)", "max(amount), min(amount)")
    monkeypatch.setattr(aggregating, "KEY_BYTES_MAX", 3)
    monkeypatch.setattr(aggregating, "VALUE_BYTES_MAX", 168)
    counts = {"rows": 8, "late": 2, "untimed": 1, "overflowed": 1, "unsent": 3}
    assert work.run() == counts | {"through": "2026-11-21T13:05:00+00:00"}
    unsent = [(5, "b\x01", 1, 5, 5), (5, "long", 1, 7, 7), (5, "w", 1, LARGEST, LARGEST)]
    wanted: list[Any] = [(0, "a", 2, 3, 2), (0, "b", 1, 5, 5), (5, "a", 2, 7, 7)]
    wanted += [(5, "o", 2, None, LARGEST), (55, "b", 1, 2, 2)]
    files = sorted((tmp_path / "figures").glob("date=2026-11-21/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    assert figures(rows) == sorted([*wanted, *unsent])
    assert figures(sent(client, "figures")) == wanted
    assert sum("min_amount" in row for row in rows) == 1
    work.change('"customer"', '"customer, topic"')
    assert aggregating.main(["--config", str(work.config)]) == 1, "a table keeps its key"


TOLD = {"rows": 0, "late": 0, "untimed": 0, "overflowed": 0, "unsent": 0}


def figures(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Return the minute in which each window begins, the key and the measures."""
    names = ("customer", "count", "sum_amount", "max_amount")
    made = [(int(str(row["window_start"])[14:16]), *(row.get(n) for n in names)) for row in rows]
    return sorted(made)
