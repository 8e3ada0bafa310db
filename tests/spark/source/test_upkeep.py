"""Files of a table that are replaced while a run writes it: crashes and rivals at each step."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from imago_client.message_queue import MessageQueue
from imago_spark.errors import FencedError, TableError
from imago_spark.incarnations import Incarnation
from imago_spark.pipelines.audit import files_differ, offsets_differ, undisturbed
from imago_spark.pipelines.compact.upkeep import StoredFile, chunks, groups, is_old
from imago_spark.pipelines.tables.commits import Commit, DataFile, Landed, StagedBatch, Upkeep
from imago_spark.pipelines.tables.footers import FileContent
from imago_spark.pipelines.tables.history import (
    MOVE_LOOKS,
    History,
    Lake,
    commits_of,
    history_of,
)
from imago_spark.pipelines.tables.table import TableWriter
from imago_spark.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE, OTHER = (MessageQueue("orders", "shard-0", number) for number in (1, 2))
PLACE = (QUEUE.topic, QUEUE.shard)
FIRST, SECOND = (Incarnation(number, number) for number in (1 << 62, (1 << 62) + 1))
DAY = "date=2026-11-21"


def land(table: TableWriter, start: int, end: int, made: Incarnation = FIRST) -> None:
    """Add one file that stands for these rows; its content names them."""
    attempt = table.stage()
    file = attempt / DAY / "part-0.parquet"
    file.parent.mkdir(parents=True)
    file.write_text(f"{start}-{end}\n")
    name = file.relative_to(attempt.parent).as_posix()
    files = (DataFile(name, "", end - start, file.stat().st_size),)
    added = StagedBatch("q", table.last.batch + 1, files, (Landed(QUEUE, start, end),))
    table.commit(replace(added, incarnations={PLACE: made}), holes=made is SECOND)


def begun(path: Path) -> TableWriter:
    """A table with two small files, and the run that writes it."""
    table = TableWriter(path)
    table.begin()
    land(table, 0, 10)
    land(table, 10, 20)
    return table


def merged(path: Path, table: TableWriter, name: str = "one") -> Upkeep:
    """Stage one file in place of two."""
    removed = tuple(table.read(number).files[0].path for number in (1, 2))
    file = path / "_imago" / "compacting" / name / "part.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("0-20\n")
    staged = DataFile(f"../compacting/{name}/part.parquet", DAY, 20, file.stat().st_size)
    return Upkeep(removed=removed, files=(staged,))


def rows(path: Path) -> list[str]:
    """Return what any reader of the folder finds: it passes over names with `_`."""
    return sorted(file.read_text().strip() for file in path.glob("date=*/*.parquet"))


def joined(path: Path) -> TableWriter:
    table = TableWriter(path)
    table.join()
    return table


def test_a_run_goes_on_beside_one_who_replaces_its_files(tmp_path: Path) -> None:
    run = begun(tmp_path)
    made = joined(tmp_path).maintain(merged(tmp_path, run))
    assert (made.number, made.rows, rows(tmp_path)) == (3, 20, ["0-20"])
    land(run, 20, 25)
    assert (run.last.number, run.last.rows, rows(tmp_path)) == (4, 25, ["0-20", "20-25"])
    lake = Lake(run)
    assert lake.history.ranges == {QUEUE: [(0, 25)]}
    assert [number for number, _ in lake.present()] == [3, 4]
    assert run.read(3) == made
    assert list(files_differ(run, lake.commits)) == []
    assert len(lake.files({QUEUE: [(21, 22)]})) == 2, "which rows a merged file has it says itself"


def test_one_who_replaces_files_goes_on_beside_the_run(tmp_path: Path) -> None:
    run = begun(tmp_path)
    keeper = joined(tmp_path)
    land(run, 20, 25)
    made = keeper.maintain(merged(tmp_path, run))
    assert (made.number, made.rows, made.ends) == (4, 25, {QUEUE: 25})
    assert rows(tmp_path) == ["0-20", "20-25"]
    new = TableWriter(tmp_path)
    new.begin()
    with pytest.raises(FencedError, match="another run"):
        land(run, 25, 30)
    land(new, 25, 30)
    assert rows(tmp_path) == ["0-20", "20-25", "25-30"]


def expired(run: TableWriter, number: int) -> Upkeep:
    """Let the only file of a commit go."""
    file = run.read(number).files[0]
    return Upkeep(removed=(file.path,), expired=(Landed(QUEUE, 0, file.rows),), rows=file.rows)


@pytest.mark.parametrize("later", ["run", "keeper", "next-run"])
def test_what_two_keepers_did_one_after_the_other_is_taken_in_by_everyone(
    tmp_path: Path, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that one has made is gone again once the commit is taken in that made it."""
    run, keeper = begun(tmp_path), joined(tmp_path)
    third = replace(merged(tmp_path, run, "third"), removed=())
    joined(tmp_path).maintain(merged(tmp_path, run))
    before = run.read(3)
    # The next run has looked for the last commit, and another one is made before it goes on.
    new, looks, read_last = TableWriter(tmp_path), iter([before]), TableWriter.read_last
    monkeypatch.setattr(new, "read_last", lambda: next(looks, None) or read_last(new))
    joined(tmp_path).maintain(expired(run, 3))
    if later == "run":
        land(run, 20, 25)
        assert (run.last.number, run.last.rows, rows(tmp_path)) == (5, 5, ["20-25"])
    elif later == "keeper":
        assert keeper.maintain(third).number == 5
    else:
        assert new.begin().number == 5
    assert list(files_differ(run, commits_of(run))) == []


def test_rows_that_are_gone_without_a_commit_stop_the_run(tmp_path: Path) -> None:
    run = begun(tmp_path)
    made = joined(tmp_path).maintain(merged(tmp_path, run))
    (tmp_path / made.files[0].path).unlink()
    with pytest.raises(TableError, match="committed, but its rows are gone"):
        land(run, 20, 25)


def test_readers_find_the_files_of_one_who_died_before_he_moved_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(tmp_path)
    pauses: list[float] = []
    with monkeypatch.context() as patched:
        patched.setattr(TableWriter, "_publish", lambda *_: None)
        joined(tmp_path).maintain(merged(tmp_path, run))
    lake = Lake(TableWriter(tmp_path), pauses.append)
    assert [Path(file).read_text() for file in lake.files()] == ["0-20\n"]
    assert len(pauses) == MOVE_LOOKS

    def moved(_: float) -> None:
        joined(tmp_path)

    alive = Lake(TableWriter(tmp_path), moved)
    assert alive.files() == [str(tmp_path / DAY / "000000000003-00000.parquet")]


def test_a_table_made_anew_is_another_one(tmp_path: Path) -> None:
    run = begun(tmp_path)
    lake = Lake(run)
    land(run, 20, 25)
    lake.refresh()
    assert lake.identity == run.identity == joined(tmp_path).identity
    shutil.rmtree(tmp_path)
    assert begun(tmp_path).identity != lake.identity
    with pytest.raises(TableError, match="was removed and made anew meanwhile"):
        lake.refresh()


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize(
    "later",
    [
        lambda run: land(run, 20, 25),
        lambda run: TableWriter(run.path).begin(),
        lambda run: joined(run.path),
    ],
    ids=["run", "next-run", "keeper"],
)
def test_who_dies_while_files_are_replaced_leaves_the_rest_to_the_next(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    later: Callable[[TableWriter], object],
) -> None:
    run = begun(tmp_path)
    keeper, done = joined(tmp_path), merged(tmp_path, run)
    left = [None] * steps

    def mortal(name: str) -> None:
        original = getattr(Path, name)

        def step(self: Path, *given: object, **more: object) -> object:
            if self.suffix == ".parquet":
                if not left:
                    raise KeyboardInterrupt
                left.pop()
            return original(self, *given, **more)

        monkeypatch.setattr(Path, name, step)

    with monkeypatch.context() as monkeypatch:
        mortal("unlink")
        mortal("rename")
        if steps < 3:
            with pytest.raises(KeyboardInterrupt):
                keeper.maintain(done)
        else:
            keeper.maintain(done)
    # No reader ever sees a row twice, and the table has all of them.
    assert rows(tmp_path) == [["0-10", "10-20"], ["10-20"], [], ["0-20"]][steps]
    later(run)
    assert [one for one in rows(tmp_path) if one != "20-25"] == ["0-20"]
    assert list(files_differ(run, commits_of(run))) == []


def test_rows_are_not_taken_away_where_those_in_their_place_are_gone(tmp_path: Path) -> None:
    run = begun(tmp_path)
    keeper, done = joined(tmp_path), merged(tmp_path, run)
    put = TableWriter._put

    def losing(self: TableWriter, *given: object) -> bool:
        found = put(self, *given)  # type: ignore[arg-type]
        (tmp_path / "_imago" / "compacting" / "one" / "part.parquet").unlink()
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TableWriter, "_put", losing)
        with pytest.raises(TableError, match="committed, but its rows are gone"):
            keeper.maintain(done)
    assert rows(tmp_path) == ["0-10", "10-20"]


def test_files_are_replaced_once_and_only_of_the_topic_that_they_are_of(tmp_path: Path) -> None:
    run = begun(tmp_path)
    one, two, three = (joined(tmp_path) for _ in range(3))
    one.maintain(merged(tmp_path, run))
    with pytest.raises(TableError, match="somebody else has replaced files"):
        two.maintain(merged(tmp_path, run, "two"))
    land(run, 0, 5, SECOND)
    third = replace(merged(tmp_path, run, "three"), removed=())
    with pytest.raises(TableError, match="a topic was made anew meanwhile"):
        three.maintain(third)
    assert rows(tmp_path) == ["0-20", "0-5"]


def test_what_has_expired_is_neither_there_nor_missing(tmp_path: Path) -> None:
    run = begun(tmp_path)
    expired = (Landed(QUEUE, 0, 10),)
    removed = (run.read(1).files[0].path,)
    joined(tmp_path).maintain(Upkeep(removed=removed, expired=expired, rows=10))
    land(run, 20, 25)
    assert (run.last.rows, rows(tmp_path)) == (15, ["10-20", "20-25"])
    history = history_of(commits_of(run))
    assert (history.ranges, history.had(QUEUE)) == ({QUEUE: [(10, 25)]}, [(0, 25)])
    now = Progress(offsets={QUEUE: 25}, incarnations={PLACE: FIRST})
    assert list(offsets_differ(history, {QUEUE: 0}, now)) == []
    assert list(files_differ(run, commits_of(run))) == []


def test_an_audit_looks_again_where_files_were_replaced_meanwhile(tmp_path: Path) -> None:
    run = begun(tmp_path)
    looks: list[int] = []

    def look(commits: list[Commit]) -> str:
        looks.append(commits[-1].number)
        if len(looks) == 1:
            joined(tmp_path).maintain(merged(tmp_path, run))
            raise PySparkException("a file is gone")
        land(run, 20, 25)  # a run that goes on disturbs nobody
        return "found"

    assert undisturbed(run, look) == "found"
    assert looks == [2, 3]
    with pytest.raises(ZeroDivisionError):
        undisturbed(run, lambda _: 1 / 0)
    with pytest.raises(PySparkException):
        undisturbed(run, failing)


def failing(_: list[Commit]) -> None:
    raise PySparkException("something else")


def stored(start: int, end: int, size: int = 10, queue: MessageQueue = QUEUE) -> StoredFile:
    file = DataFile("", f"{DAY}/{start:012d}-00000.parquet", end - start, size)
    return StoredFile(file, start, FileContent(queue, start, end, end - start, 0))


def found(history: History, *files: StoredFile, least: int = 2) -> list[list[int]]:
    made = groups(files, history, file_bytes=25, files_min=least)
    return [[one.content.start for one in group] for group in made]


def test_neighbours_of_one_queue_and_day_become_one_file(tmp_path: Path) -> None:
    history = history_of(commits_of(begun(tmp_path)))
    one, two, three = stored(1, 2), stored(2, 3), stored(3, 4)
    assert found(history, three, one, two) == [[1, 2]], "not larger than a file shall be"
    assert found(history, one, two, least=3) == []
    assert found(history, one, stored(2, 3, 25), three) == [[1, 3]], "a large one stays"
    assert found(history, one, stored(2, 3, queue=OTHER)) == []
    history.since[PLACE] = 2
    assert found(history, one, two, three) == [[2, 3]], "nor are rows of a former topic touched"
    pairs = [(one, two), (three, one), (two, three)]
    assert [len(chunk) for chunk in chunks(pairs, 4)] == [2, 1]


def test_days_are_kept_by_their_number() -> None:
    today = date(2026, 11, 30)
    kept = [not is_old(f"{DAY}/x.parquet", today, days) for days in (8, 9, None)]
    assert kept == [False, True, True]
    assert is_old(f"_rejects/{DAY}/x.parquet", today, 8)
    assert not is_old("date=__HIVE_DEFAULT_PARTITION__/x.parquet", today, 1)
