"""What an audit finds in commits and offsets; without Spark and brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_client.message_queue import MessageQueue
from imago_spark.incarnations import Incarnation
from imago_spark.pipelines.audit import common, files_differ, offsets_differ
from imago_spark.pipelines.tables.commits import Commit, DataFile, Landed
from imago_spark.pipelines.tables.history import History
from imago_spark.pipelines.tables.table import TableWriter
from imago_spark.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = MessageQueue("orders", "shard-0", 1)
PLACE = (QUEUE.topic, QUEUE.shard)
FIRST, SECOND = (Incarnation(number, number) for number in (1 << 62, (1 << 62) + 1))


def history(*ranges: tuple[int, int], made: Incarnation = FIRST) -> History:
    found = History(Commit(number=0, epoch=0, run="r", ends={}))
    for number, (start, end) in enumerate(ranges, start=1):
        landed = (Landed(QUEUE, start, end),)
        found.add(
            Commit(
                number=number,
                epoch=0,
                run="r",
                ends={QUEUE: end},
                incarnations={PLACE: made},
                cluster="c",
                landed=landed,
            )
        )
    return found


def topic(end: int, *, made: Incarnation = FIRST, cluster: str = "c") -> Progress:
    return Progress(offsets={QUEUE: end}, incarnations={PLACE: made}, cluster=cluster)


def kinds(had: History, first: int, now: Progress, *, latest: bool = False) -> list[object]:
    found = offsets_differ(had, {QUEUE: first}, now, from_latest=latest)
    return [(one.kind, one.start, one.end) for one in found]


def test_a_table_that_has_all_or_waits_for_more_differs_in_nothing() -> None:
    assert kinds(history((0, 10), (10, 20)), 0, topic(20)) == []
    assert kinds(history((0, 10), (10, 20)), 0, topic(50)) == []
    assert kinds(history((5, 20)), 5, topic(20)) == [], "retention was there before the table"
    assert kinds(history((5, 20)), 9, topic(20)) == [], "and goes on after it"
    assert kinds(History(Commit(number=0, epoch=0, run="r", ends={})), 5, topic(20)) == []


def test_what_is_missing_is_named_with_whether_the_topic_still_has_it() -> None:
    had = history((3, 10), (12, 20))
    assert kinds(had, 0, topic(20)) == [("missing", 0, 3), ("missing", 10, 12)]
    assert kinds(had, 0, topic(20), latest=True) == [("missing", 10, 12)]
    found = [one.what for one in offsets_differ(had, {QUEUE: 15}, topic(20))]
    assert found == ["gone from the topic, too"]
    assert kinds(history((0, 10)), 12, topic(20)) == [("lost", 10, 12)]
    assert kinds(history((0, 10)), 0, topic(8)) == [("beyond", 8, 10)]


def test_another_topic_or_cluster_is_no_matter_of_offsets() -> None:
    assert kinds(history((0, 10)), 0, topic(20, made=SECOND)) == [("other topic", None, None)]
    assert kinds(history((0, 10)), 0, topic(20, cluster="d")) == [("other cluster", None, None)]
    gone = Progress(offsets={}, cluster="c")
    assert kinds(history((0, 10)), 0, gone) == [("no queue", None, None)]


def test_rows_of_a_former_topic_do_not_count() -> None:
    had = history((0, 10), (10, 20))
    made = replace(had.last, number=3, landed=(Landed(QUEUE, 0, 5),), ends={QUEUE: 5})
    had.add(replace(made, incarnations={PLACE: SECOND}))
    assert (had.ranges, had.since) == ({QUEUE: [(0, 5)]}, {PLACE: 3})
    assert kinds(had, 0, topic(5, made=SECOND)) == []


def test_only_what_both_have_is_compared() -> None:
    had = history((0, 10), (12, 20))
    assert common(had, {QUEUE: 4}, {QUEUE: 15}) == {QUEUE: [(4, 10), (12, 15)]}
    assert common(had, {QUEUE: 20}, {QUEUE: 30}) == {}
    assert common(had, {}, {}) == {}


def test_files_are_those_that_commits_name(tmp_path: Path) -> None:
    table = TableWriter(tmp_path)
    for folder, name in (
        ("date=d", "000000000001-00000"),
        ("_rejects/date=d", "000000000001-00001"),
        ("date=d", "000000000009-00000"),  # of a run that goes on
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / f"{name}.parquet").write_bytes(b"rows")
    files = (
        DataFile("a", "date=d/000000000001-00000.parquet", 5, 4),
        DataFile("b", "_rejects/date=d/000000000001-00001.parquet", 1, 4),
    )
    commit = Commit(number=1, epoch=0, run="r", ends={}, files=files)
    assert list(files_differ(table, [commit])) == []
    (tmp_path / "date=d" / "000000000001-00000.parquet").write_bytes(b"row")
    (tmp_path / "_rejects" / "date=d" / "000000000001-00001.parquet").rename(
        tmp_path / "date=d" / "mine.parquet"
    )
    assert [one.what for one in files_differ(table, [commit])] == [
        "date=d/000000000001-00000.parquet: has 3 bytes, was written with 4",
        "_rejects/date=d/000000000001-00001.parquet: is gone, with 1 rows",
        "date=d/mine.parquet: no commit names it, and readers find its rows",
    ]
