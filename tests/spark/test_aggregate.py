"""The aggregate application: each row of its input counts once, and each figure is sent once."""

from __future__ import annotations

import json
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

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(500)]

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PLACE = ("orders", "shard-0", 0)
QUEUE = MessageQueue(*PLACE)
FIELDS = {"customer": "string", "amount": "bigint", "at": "timestamp"}
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


def test_each_row_is_in_one_figure_and_each_figure_is_sent_once(
    spark: SparkSession,
    cluster: str,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(application, "spark", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(streaming.StopSignal, "install", lambda _: None)
    client.admin.create_topic("figures", queues=2)
    table = TableWriter(tmp_path / "lake")
    contract.claim(table, "parse", FIELDS)
    table.begin()
    config = tmp_path / "aggregate.toml"
    config.write_text(
        f'bootstrap = "{cluster}"\ntopics = ["orders"]\npath = "{tmp_path / "figures"}"\n[config]\n'
        f'trigger = "available-now"\ninput = "{tmp_path / "lake"}"\nby = "customer"\ntime = "at"\n'
        'delay = "2m"\nmeasures = "count, sum(amount), max(amount)"\ntopic = "figures"\n'
    )
    # An event is no newer than its being stored: the last one, a day ahead, closes no window.
    land(
        table, 60, ("a", 1, 1), ("a", 2, 4.9), ("b", 5, 0), ("a", 7, 5), ("a", 0, 9), ("z", 9, 1500)
    )
    with monkeypatch.context() as patched:
        patched.setattr(Figures, "_send_files", dying)
        with pytest.raises(KeyboardInterrupt):
            aggregating.main(["--config", str(config)])
    assert sent(client, "figures") == []
    land(table, 80, ("a", 1, 2), ("a", 3, 6), ("b", 2, 56), ("b", 1, None), ("b", 4, 71))
    assert aggregating.main(["--config", str(config)]) == 0
    told = json.loads(capsys.readouterr().out)
    through = "2026-11-21T13:05:00+00:00"
    assert told == {"rows": 4, "late": 2, "untimed": 1, "through": through}
    wanted = [(0, "a", 2, 3, 2), (0, "b", 1, 5, 5), (5, "a", 2, 7, 7), (55, "b", 1, 2, 2)]
    files = sorted((tmp_path / "figures").glob("date=2026-11-21/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    assert figures(rows) == wanted
    assert figures(sent(client, "figures")) == wanted
    config.write_text(config.read_text().replace('"customer"', '"customer, topic"'))
    assert aggregating.main(["--config", str(config)]) == 1, "a table keeps its key"


def figures(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Return the minute in which each window begins, the key and the measures."""
    names = ("customer", "count", "sum_amount", "max_amount")
    return sorted((int(str(row["window_start"])[14:16]), *(row[n] for n in names)) for row in rows)
