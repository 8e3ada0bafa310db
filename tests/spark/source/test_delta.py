"""The table's commits as a Delta log: each once, whoever dies between the two, or comes second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from imago_client.message_queue import MessageQueue
from imago_spark.errors import TableError
from imago_spark.pipelines.tables import delta, table
from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch, Upkeep
from imago_spark.pipelines.tables.table import TableWriter
from imago_spark.schema import CHECKED, CORE, arrow_schema

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = MessageQueue("orders", "shard-0", 1)
DAY = "date=2026-11-21"


def begun(path: Path) -> TableWriter:
    made = TableWriter(path, delta=True)
    made.begin()
    return made


def write(path: Path, start: int, end: int) -> int:
    """Write a file with these offsets; return its size."""
    schema = arrow_schema((*CORE, CHECKED))
    rows = [{"offset": at, "topic": QUEUE.topic, CHECKED: True} for at in range(start, end)]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path.stat().st_size


def staged(into: TableWriter, start: int, end: int, day: str = DAY) -> StagedBatch:
    attempt = into.stage()
    file = attempt / day / "part.parquet"
    size = write(file, start, end)
    name = file.relative_to(attempt.parent).as_posix()
    return StagedBatch(
        "q", start, (DataFile(name, "", end - start, size),), (Landed(QUEUE, start, end),)
    )


def offsets(path: Path) -> list[int]:
    """Return the rows that a reader of Delta finds."""
    found = DeltaTable(path).to_pyarrow_table(columns=["offset"]).column(0)
    return sorted(found.to_pylist())


def test_each_commit_is_one_of_deltas_with_its_number(tmp_path: Path) -> None:
    into = begun(tmp_path)
    into.commit(staged(into, 0, 3))
    into.commit(staged(into, 3, 5, "date=__HIVE_DEFAULT_PARTITION__"))
    assert offsets(tmp_path) == [0, 1, 2, 3, 4]
    found = DeltaTable(tmp_path)
    assert found.transaction_version(f"imago/{into.identity}") == 2
    days = found.to_pyarrow_table(columns=["date"]).column(0).to_pylist()
    assert sorted(map(str, days)) == ["2026-11-21"] * 3 + ["None"] * 2
    # A run that does not ask for it keeps a log that is there.
    again = TableWriter(tmp_path)
    again.begin()
    again.commit(staged(again, 5, 6))
    assert offsets(tmp_path) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("died", ["before", "after"])
def test_a_run_that_dies_beside_deltas_commit_leaves_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died: str
) -> None:
    into = begun(tmp_path)
    into.commit(staged(into, 0, 3))

    def die(*arguments: object) -> None:
        if died == "after":
            delta.publish(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(table, "publish", die)
        with pytest.raises(KeyboardInterrupt):
            into.commit(staged(into, 3, 5))
    assert offsets(tmp_path) == ([0, 1, 2] if died == "before" else [0, 1, 2, 3, 4])
    again = begun(tmp_path)
    assert offsets(tmp_path) == [0, 1, 2, 3, 4]
    again.commit(staged(again, 5, 7))
    assert offsets(tmp_path) == [0, 1, 2, 3, 4, 5, 6]


def test_a_commit_is_not_added_twice_by_whoever_has_looked_before_another_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = begun(tmp_path)
    into.commit(staged(into, 0, 3))
    monkeypatch.setattr(table, "publish", lambda *_: None)
    made = into.commit(staged(into, 3, 5))
    late = DeltaTable(tmp_path)  # as it was when the first of two runs looked
    delta.publish(tmp_path, into.identity, made, lambda: ())
    with monkeypatch.context() as patch:
        opened = [late, DeltaTable(tmp_path)]
        patch.setattr("deltalake.DeltaTable", lambda _: opened.pop(0))
        delta.publish(tmp_path, into.identity, made, lambda: ())
        assert not opened, "the second look was needed"
    assert offsets(tmp_path) == [0, 1, 2, 3, 4]


def test_a_table_with_rows_gets_its_log_later(tmp_path: Path) -> None:
    plain = TableWriter(tmp_path)
    plain.begin()
    plain.commit(staged(plain, 0, 3))
    plain.commit(staged(plain, 3, 5))
    into = begun(tmp_path)
    assert offsets(tmp_path) == [0, 1, 2, 3, 4]
    into.commit(staged(into, 5, 6))
    assert offsets(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_files_that_are_replaced_leave_the_log(tmp_path: Path) -> None:
    into = begun(tmp_path)
    gone = [into.commit(staged(into, at, at + 2)).files[0].path for at in (0, 2)]
    keeper = TableWriter(tmp_path)
    keeper.join()
    merged = tmp_path / "_imago" / "compacting" / "a" / DAY / "part.parquet"
    size = write(merged, 0, 4)
    name = f"../compacting/{merged.relative_to(tmp_path / '_imago' / 'compacting')}"
    keeper.maintain(Upkeep(removed=tuple(gone), files=(DataFile(name, DAY, 4, size),)))
    assert offsets(tmp_path) == [0, 1, 2, 3]
    assert len(DeltaTable(tmp_path).file_uris()) == 1


def test_another_tables_log_is_refused(tmp_path: Path) -> None:
    former = begun(tmp_path / "old")
    former.commit(staged(former, 0, 1))
    into = begun(tmp_path / "new")
    (tmp_path / "old" / delta.LOG).rename(tmp_path / "new" / delta.LOG)
    with pytest.raises(TableError, match="is of another table"):
        into.commit(staged(into, 0, 3))
