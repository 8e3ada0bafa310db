"""The compact application: a table has the same rows in fewer files, and what is old goes."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imago_client.message_queue import MessageQueue
from imago_spark.errors import TableError
from imago_spark.pipelines import application, settings
from imago_spark.pipelines.compact import compacting
from imago_spark.pipelines.compact.compacting import Compaction
from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch
from imago_spark.pipelines.tables.footers import content_of
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from imago_spark.pipelines.compact.compacting import Group

pytestmark = [pytest.mark.spark]

NOW = datetime.now(UTC)
TODAY, OLD = NOW.date().isoformat(), (NOW - timedelta(days=40)).date().isoformat()
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("topic", "shard")),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
        ("born_time", pa.timestamp("us", tz="UTC")),
        ("crc_ok", pa.bool_()),
    ]
)
EARLY = datetime(1650, 1, 2, tzinfo=UTC)
"""What nanoseconds cannot say."""


def land(table: TableWriter, day: str, rows: int, *extra: str) -> None:
    """Add a file for each of two queues; `extra`: columns that earlier files do not have."""
    attempt, files, landed = table.stage(), [], []
    for number in range(2):
        queue = MessageQueue("orders", "shard-0", number)
        start = table.last.ends.get(queue, 0)
        places = range(start, start + rows)
        values = [["orders"] * rows, ["shard-0"] * rows, [number] * rows, list(places)]
        values += [[EARLY] * rows, [at != 5 for at in places]]
        made = pa.Table.from_pydict(dict(zip(SCHEMA.names, values, strict=True)), schema=SCHEMA)
        for name in extra:
            made = made.append_column(name, pa.array([name] * rows))
        file = attempt / f"date={day}" / f"part-{number}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(made, file, use_deprecated_int96_timestamps=True)
        name = file.relative_to(attempt.parent).as_posix()
        files.append(DataFile(name, "", rows, file.stat().st_size))
        landed.append(Landed(queue, start, start + rows))
    damaged = 2 if landed[0].start <= 5 < landed[0].end else 0
    batch = StagedBatch("q", table.last.batch + 1, tuple(files), tuple(landed), damaged)
    table.commit(batch)


@pytest.fixture
def run(tmp_path: Path) -> TableWriter:
    """A run that has written one old day and four batches of this one."""
    table = TableWriter(tmp_path / "lake")
    table.begin()
    land(table, OLD, 3)
    for rows in (4, 1, 2):
        land(table, TODAY, rows)
    land(table, TODAY, 1, "added")
    (tmp_path / "pipeline.toml").write_text(
        f'bootstrap = "127.0.0.1:1"\ntopics = ["orders"]\npath = "{tmp_path / "lake"}"\n'
        'checkpoint = "/none"\n[config]\nkeepDays = 30\n'
    )
    return table


def test_small_files_become_one_a_queue_and_old_days_go(
    spark: SparkSession,
    run: TableWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(application, "spark", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    asked = ["--config", str(tmp_path / "pipeline.toml")]
    assert compacting.main([*asked, "--dry-run"]) == 0
    would = json.loads(capsys.readouterr().out)
    assert would == {"files": 8, "into": 2, "expired": 6, "rows": 22}
    assert run.read_last() == run.last, "a dry run writes nothing"
    left = tmp_path / "lake" / "_imago" / "compacting" / "left"
    left.mkdir(parents=True)
    monkeypatch.setattr(compacting, "FILES_AT_ONCE", 4)
    before = run.last.number
    assert compacting.main(asked) == 0
    assert json.loads(capsys.readouterr().out) == would | {"rows": 16}
    last = run.read_last()
    assert last is not None
    assert last.number == before + 3, "old days went, then each queue's files"
    assert left.exists(), "it may be somebody's who is at work"
    os.utime(left, (0, 0))
    files = sorted((tmp_path / "lake").glob("date=*/*.parquet"))
    found = [content_of(file) for file in files]
    assert [(one.queue.queue_id, one.start, one.end, one.damaged) for one in found] == [
        (0, 3, 11, 1),
        (1, 3, 11, 1),
    ]
    rows = spark.read.parquet(str(tmp_path / "lake")).orderBy("offset").collect()
    assert [row.offset for row in rows if not row.queue] == list(range(3, 11))
    assert {row.born_time.year for row in rows} == {1650}
    assert [row.offset for row in rows if row.added] == [10, 10]
    land(run, TODAY, 1)
    assert (run.last.rows, run.last.damaged) == (18, 2)
    assert compacting.main(asked) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 0, "two files a queue are few enough"
    assert not left.exists()


class Copying:
    """A frame that is written as a copy of the first file of its only group."""

    def __init__(self, _: object, table: Path, found: Sequence[Group]) -> None:
        self._rows = (table / found[0][0].file.path).read_bytes()
        self.write = self

    def partitionBy(self, _: str) -> Copying:  # noqa: N802 - Spark's name
        return self

    def parquet(self, path: str) -> None:
        file = Path(path) / "_group=0" / "part.parquet"
        file.parent.mkdir(parents=True)
        file.write_bytes(self._rows)


def test_what_is_written_is_compared_with_what_it_replaces(
    run: TableWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings.load(tmp_path / "pipeline.toml", None, compacting.OWN)
    work = Compaction(given, lambda: None, iter(range(0, 10**6, 1000)).__next__)
    work.table.join()
    group = work.small()[0]
    monkeypatch.setattr(compacting, "build", Copying)
    with pytest.raises(TableError, match="but the files to replace have"):
        work.merge(None, [group])  # type: ignore[arg-type]
    monkeypatch.setattr(compacting, "ATTEMPT_SECONDS_MAX", 500)
    with pytest.raises(TableError, match="took more than a day"):
        work.merge(None, [group[:1]])  # type: ignore[arg-type]
    assert run.read_last() == run.last
