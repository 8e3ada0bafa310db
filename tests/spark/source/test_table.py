"""Tables of committed batches, without Spark: crashes and rivals at each step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_client.message_queue import MessageQueue
from imago_spark.broker import TopicBrokers
from imago_spark.errors import DataLossError, FencedError, TableError
from imago_spark.incarnations import Incarnation
from imago_spark.offsets import EARLIEST, LATEST
from imago_spark.pipelines import landing
from imago_spark.pipelines.settings import IngestSettings
from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch
from imago_spark.pipelines.tables.table import TableWriter
from imago_spark.progress import Progress, from_option

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = MessageQueue("orders", "shard-0", 1)
DAY = "date=2026-11-21"


def staged(
    table: TableWriter, start: int, end: int, *, batch: int = 0, query: str = "q"
) -> StagedBatch:
    """Stage one file that stands for these rows; its content names them."""
    attempt = table.stage()
    (attempt / DAY).mkdir(parents=True)
    file = attempt / DAY / "part-0.parquet"
    file.write_text(f"{start}-{end}\n")
    name = file.relative_to(attempt.parent).as_posix()
    files = (DataFile(name, "", end - start, file.stat().st_size),)
    return StagedBatch(query, batch, files, (Landed(QUEUE, start, end),))


def rows(path: Path) -> list[str]:
    """Return what any reader of the folder finds: it passes over names with `_`."""
    return sorted(file.read_text().strip() for file in path.glob("date=*/*.parquet"))


def begun(path: Path, epoch: int = 0) -> TableWriter:
    table = TableWriter(path, epoch=epoch)
    table.begin()
    return table


def test_batches_are_added_and_remembered(tmp_path: Path) -> None:
    table = begun(tmp_path)
    assert (table.last.number, table.last.rows, dict(table.last.ends)) == (0, 0, {})
    assert not table.has("q", 0)
    table.commit(staged(table, 0, 10))
    made = table.commit(staged(table, 10, 15, batch=1))
    assert (made.number, made.rows, dict(made.ends)) == (2, 15, {QUEUE: 15})
    assert rows(tmp_path) == ["0-10", "10-15"]
    assert table.has("q", 1)
    assert not table.has("q", 2)
    assert not table.has("other", 0)
    again = begun(tmp_path)
    assert (again.last.rows, dict(again.last.ends), again.has("q", 1)) == (15, {QUEUE: 15}, True)
    assert again.read(2) == made
    assert again.read(1).landed == (Landed(QUEUE, 0, 10),)


def test_what_was_not_committed_is_never_seen_and_taken_away(tmp_path: Path) -> None:
    table = begun(tmp_path)
    staged(table, 0, 10)
    assert rows(tmp_path) == []
    begun(tmp_path)
    assert list((tmp_path / "_imago" / "staging").iterdir()) == []


def test_a_batch_that_died_while_it_was_moved_is_finished_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = begun(tmp_path)
    first, second = staged(table, 0, 10), staged(table, 10, 20)
    both = StagedBatch("q", 0, first.files + second.files, (Landed(QUEUE, 0, 20),))
    moved: list[Path] = []
    rename = type(tmp_path).rename

    def dying(self: Path, target: Path) -> None:
        if moved:
            raise KeyboardInterrupt
        moved.append(target)
        rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.rename", dying)
        with pytest.raises(KeyboardInterrupt):
            table.commit(both)
    assert rows(tmp_path) == ["0-10"]
    again = begun(tmp_path)
    assert rows(tmp_path) == ["0-10", "10-20"]
    assert again.has("q", 0)
    assert again.last.rows == 20


def test_a_run_is_shut_out_by_the_next_one_whatever_it_has_staged(tmp_path: Path) -> None:
    old = begun(tmp_path, epoch=1)
    old.commit(staged(old, 0, 10))
    late = staged(old, 10, 20, batch=1)
    new = begun(tmp_path, epoch=2)
    with pytest.raises((FencedError, FileNotFoundError)):
        old.commit(late)
    new.commit(staged(new, 10, 20, batch=1))
    with pytest.raises(FencedError, match="another run"):
        old.commit(staged(old, 10, 20, batch=1))
    assert rows(tmp_path) == ["0-10", "10-20"]
    with pytest.raises(FencedError, match="a run of epoch 2 has begun, ours is 1"):
        begun(tmp_path, epoch=1)


def test_a_rival_that_commits_while_a_run_begins_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = begun(tmp_path, epoch=1)
    waiting = staged(old, 0, 10)
    new = TableWriter(tmp_path, epoch=2)
    looked: list[None] = []
    read_last = TableWriter.read_last

    def and_then_the_rival(self: TableWriter) -> object:
        found = read_last(self)
        if not looked:
            looked.append(None)
            old.commit(waiting)
        return found

    monkeypatch.setattr(TableWriter, "read_last", and_then_the_rival)
    assert new.begin().rows == 10
    assert (new.last.number, new.has("q", 0)) == (2, True)
    assert rows(tmp_path) == ["0-10"]


@pytest.mark.parametrize(
    ("start", "said"), [(5, "offsets 5 to 9 are in the table"), (12, "offsets 10 to 11 would be")]
)
def test_rows_are_neither_added_twice_nor_left_out(tmp_path: Path, start: int, said: str) -> None:
    table = begun(tmp_path)
    table.commit(staged(table, 0, 10))
    with pytest.raises(TableError, match=said):
        table.commit(staged(table, start, 20, batch=1))
    assert rows(tmp_path) == ["0-10"]
    assert table.commit(staged(table, 10, 20, batch=1)).rows == 20


def test_rows_that_are_gone_for_good_may_be_missing_if_that_is_allowed(tmp_path: Path) -> None:
    table = begun(tmp_path)
    table.commit(staged(table, 0, 10))
    assert dict(table.commit(staged(table, 12, 20, batch=1), holes=True).ends) == {QUEUE: 20}
    with pytest.raises(TableError, match="already"):
        table.commit(staged(table, 12, 20, batch=2), holes=True)


def test_a_damaged_commit_is_named(tmp_path: Path) -> None:
    begun(tmp_path)
    path = tmp_path / "_imago" / "commits" / "000000" / "000000000000.json"
    path.write_text('{"format":3}')
    with pytest.raises(TableError, match="this version knows 1 and 2"):
        begun(tmp_path)


def test_rows_of_a_commit_that_somebody_removed_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = begun(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(TableWriter, "_publish", lambda *_: None)
        made = table.commit(staged(table, 0, 10))
    (tmp_path / "_imago" / "staging" / made.files[0].staged).unlink()
    with pytest.raises(TableError, match="committed, but its rows are gone"):
        begun(tmp_path)


PLACE = (QUEUE.topic, QUEUE.shard)
FIRST, SECOND = (Incarnation(number, number) for number in (1 << 62, (1 << 62) + 1))


def of_topic(batch: StagedBatch, made: Incarnation, cluster: str = "c") -> StagedBatch:
    return replace(batch, incarnations={PLACE: made}, cluster=cluster)


def test_rows_of_another_topic_of_that_name_are_not_added(tmp_path: Path) -> None:
    """Also where its offsets go on where the table ends."""
    table = begun(tmp_path)
    table.commit(staged(table, 0, 10))  # by an older version: it did not say of which topic
    table.commit(of_topic(staged(table, 10, 20, batch=1), FIRST))
    again = begun(tmp_path)
    assert again.last.incarnations[PLACE].is_same(FIRST)
    assert again.last.cluster == "c"
    with pytest.raises(TableError, match=r"orders/shard-0/1: .* offsets below 20 of another topic"):
        again.commit(of_topic(staged(again, 20, 30, batch=2), SECOND, "d"))
    assert rows(tmp_path) == ["0-10", "10-20"]
    made = again.commit(of_topic(staged(again, 0, 5, batch=2), SECOND, "d"), holes=True)
    assert (dict(made.ends), made.cluster) == ({QUEUE: 5}, "d")
    with pytest.raises(TableError, match="already"):
        again.commit(of_topic(staged(again, 4, 9, batch=3), SECOND, "d"), holes=True)


def test_a_batch_is_of_the_topics_that_were_there_before_and_after_it(tmp_path: Path) -> None:
    table = begun(tmp_path)
    batch = staged(table, 0, 10)
    before, after = (
        Progress(offsets={QUEUE: 10}, incarnations={PLACE: one}, cluster="c")
        for one in (FIRST, SECOND)
    )
    assert landing.of_topics(batch, before, before) == of_topic(batch, FIRST)
    nobody = Progress(offsets={})  # its shard had no live broker for the moment
    assert landing.of_topics(batch, nobody, after) == of_topic(batch, SECOND)
    with pytest.raises(DataLossError, match="orders/shard-0/1: read up to offset 10"):
        landing.of_topics(batch, before, after)


def test_a_new_checkpoint_begins_in_the_tables_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source refuses them where they are gone, so all that the table has is named."""
    table = begun(tmp_path)
    table.commit(of_topic(staged(table, 0, 10), FIRST))
    there = [MessageQueue("orders", "shard-0", 0)]
    monkeypatch.setattr(TopicBrokers, "queues", lambda _: there)
    settings = IngestSettings(
        bootstrap="h:1", topics=("orders",), path=tmp_path, checkpoint="/none"
    )
    found = from_option(landing.beginning(settings, table.last), "startingOffsets")
    assert found.offsets == {QUEUE: 10, there[0]: EARLIEST}
    assert found.incarnations[PLACE].is_same(FIRST)
    skipping = replace(settings, skips_lost=True, from_latest=True)
    assert from_option(landing.beginning(skipping, table.last), "x").offsets == {there[0]: LATEST}
    other = replace(settings, topics=("refunds",))
    assert from_option(landing.beginning(other, table.last), "x").offsets == {there[0]: EARLIEST}
