"""The report application: a page about the messages that a table has."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imago_client.message_queue import MessageQueue
from imago_spark.pipelines import application
from imago_spark.pipelines.report import reporting
from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
COLUMNS = {"topic": pa.string(), "store_time": pa.timestamp("us", tz="UTC")}
COLUMNS |= {"born_time": pa.timestamp("us", tz="UTC"), "value": pa.binary(), "crc_ok": pa.bool_()}


def test_a_page_has_what_the_last_hours_of_a_table_have(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(application, "spark", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    table = TableWriter(tmp_path / "lake")
    table.begin()
    attempt = table.stage()
    file = attempt / "date=2026-11-21" / "part.parquet"
    file.parent.mkdir(parents=True)
    rows = [
        (
            "orders",
            NOON + timedelta(seconds=at),
            NOON + timedelta(seconds=at - 0.25),
            b"x" * 10,
            at != 7,
        )
        for at in range(100)
    ]
    rows.append(("refunds", NOON, NOON + timedelta(seconds=1), b"y", True))
    rows.append(("refunds", NOON - timedelta(days=2), NOON - timedelta(days=2), b"y", True))
    values = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.Table.from_pydict(values, schema=pa.schema(COLUMNS)), file)
    files = (DataFile(file.relative_to(attempt.parent).as_posix(), "", 102, file.stat().st_size),)
    landed = (Landed(MessageQueue("orders", "shard-0", 0), 0, 102),)
    table.commit(StagedBatch("q", 0, files, landed, 1))
    config = tmp_path / "pipeline.toml"
    config.write_text(
        f'bootstrap = "127.0.0.1:1"\ntopics = ["orders"]\npath = "{tmp_path / "lake"}"\n'
        'checkpoint = "/none"\n'
    )
    out = tmp_path / "report.html"
    assert reporting.main(["--config", str(config), "--out", str(out), "--hours", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    times = {"from": "2026-11-21T11:02:00+00:00", "to": "2026-11-21T12:02:00+00:00"}
    nobody = {"behind": None, "differences": None}
    assert told == {"rows": 101, "topics": 2, "skewed": 1, **times, **nobody}
    text = out.read_text()
    assert "<td>orders</td>" in text
    assert '<td class="n">100</td><td class="n">1,000</td><td class="n">1</td>' in text
    assert text.count("<svg") == 3
    assert "127.0.0.1:1" in text, "why nobody says how far the table is behind"
    assert reporting.main(["--config", str(config)]) == 2
    assert "--out is missing" in capsys.readouterr().err
