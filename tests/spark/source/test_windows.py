"""What may be aggregated, and when windows are closed; without Spark and brokers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_client.message_queue import MessageQueue
from imago_spark.errors import OptionError, TableError
from imago_spark.incarnations import Incarnation
from imago_spark.pipelines.aggregate import aggregating
from imago_spark.pipelines.aggregate.reading import lost, mark_of, new_in
from imago_spark.pipelines.aggregate.windows import OWN, Aggregation, aggregation
from imago_spark.pipelines.settings import load
from imago_spark.pipelines.tables.commits import Commit, Landed, StagedBatch, Upkeep
from imago_spark.pipelines.tables.history import Lake
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {"customer": "string", "amount": "double", "items": "int", "at": "timestamp"}
FIELDS |= {"who": "struct<name:string>"}
LEAST = {"input": "/lake/orders", "by": "customer"}
QUEUE, OTHER = (MessageQueue("orders", "shard-0", number) for number in range(2))
PLACE = ("orders", "shard-0")


def wanted(folder: Path, **own: object) -> Aggregation:
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (LEAST | own).items())
    (folder / "aggregate.toml").write_text(
        f'bootstrap = "b:9876"\ntopics = ["orders"]\npath = "/lake/figures"\n[config]\n{lines}\n'
    )
    given = load(folder / "aggregate.toml", None, OWN, unneeded=("checkpoint",))
    return aggregation(given, FIELDS)


def test_figures_have_the_types_that_follow_from_the_input(tmp_path: Path) -> None:
    measures = "count, count(amount), sum(items), sum(amount), max(at), avg(items)"
    found = wanted(tmp_path, by="customer, topic", window="1h", measures=measures)
    assert found.fields == {
        "window_start": "timestamp",
        "window_end": "timestamp",
        "customer": "string",
        "topic": "string",
        "count": "bigint",
        "count_amount": "bigint",
        "sum_items": "bigint",
        "sum_amount": "double",
        "max_at": "timestamp",
        "avg_items": "double",
    }
    least = wanted(tmp_path)
    assert (least.time, least.window_s, least.delay_s) == ("store_time", 300, 600)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"time": "amount"}, "config.time: 'amount' is double, must be a timestamp"),
        ({"by": "custmer"}, "config.by: 'custmer' is no column; there are topic"),
        ({"by": "who"}, "which is no key"),
        ({"by": "customer, customer"}, "'customer' would be a column twice"),
        ({"measures": "sum(customer)"}, "field 'customer' is string, must be tinyint or"),
        ({"measures": "median(amount)"}, "must be count or one of count, sum"),
        ({"measures": "count(nothing)"}, "field 'nothing' is no column"),
        ({"window": "7m"}, "must divide a day, or be whole days"),
        ({"window": "0s"}, "must be a time like 30s"),
        ({"delay": "soon"}, "must be a time like 30s"),
        ({"topic": "orders"}, "is the input's"),
        ({"input": "orders"}, "must be the folder of a table"),
        ({"input": "/lake/figures"}, "is path, too"),
    ],
)
def test_what_cannot_be_aggregated_is_named(tmp_path: Path, own: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=r"^config\.") as caught:
        wanted(tmp_path, **own)
    assert said in str(caught.value)


def test_an_input_that_has_no_commit_is_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    (tmp_path / "figures.toml").write_text(
        f'bootstrap = "127.0.0.1:9876"\ntopics = ["orders"]\npath = "{tmp_path / "figures"}"\n'
        f'[config]\ninput = "{lake}"\nby = "customer"\nwindow = "5m"\n'
    )
    assert aggregating.main(["--config", str(tmp_path / "figures.toml")]) == 2
    told = capsys.readouterr().err
    assert f"{lake} has no commit yet" in told
    assert "correct config.input" in told


def test_a_window_is_closed_by_an_event_that_is_newer_than_its_end_by_the_delay(
    tmp_path: Path,
) -> None:
    found = wanted(tmp_path, window="5m", delay="1m")
    assert found.closed(None) is None
    assert [found.closed(at) for at in (359.9, 360.0, 659.0, 660.0)] == [0, 300, 300, 600]
    assert found.closed(-1.0) == -300


def land(table: TableWriter, *landed: Landed, made: Incarnation) -> None:
    batch = StagedBatch("q", table.last.batch + 1, (), landed, incarnations={PLACE: made})
    table.commit(batch, holes=True)


def test_what_is_new_begins_where_the_figures_end(tmp_path: Path) -> None:
    first, second = (Incarnation(number, number) for number in (1 << 62, (1 << 62) + 1))
    table = TableWriter(tmp_path / "lake")
    table.begin()
    land(table, Landed(QUEUE, 3, 10), Landed(OTHER, 0, 2), made=first)
    lake, how = Lake(table), wanted(tmp_path)
    assert list(new_in(lake, how, None)) == [Landed(QUEUE, 3, 10), Landed(OTHER, 0, 2)]
    ends = {QUEUE: 10, OTHER: 1}
    had = Commit(number=0, epoch=0, run="r", ends=ends, incarnations={PLACE: first})
    assert list(new_in(lake, how, had)) == [Landed(OTHER, 1, 2)]
    land(table, Landed(QUEUE, 0, 4), made=second)
    lake.refresh()
    assert list(new_in(lake, how, had)) == [Landed(QUEUE, 0, 4)], "another topic begins anew"


def read(lake: Lake, *waits: tuple[MessageQueue, int], opened: int = 1) -> Commit:
    """Return the commit of figures that have read all of a table; rows of these offsets wait."""
    listed = [[one.topic, one.shard, one.queue_id, at] for one, at in waits]
    mark = {"readTo": lake.history.last.number, "open": opened, "waits": listed}
    mark |= {"inputTable": lake.identity}
    now = lake.history.last
    ends, made = now.ends, now.incarnations
    return Commit(number=0, epoch=0, run="r", ends=ends, incarnations=made, mark=mark)


@pytest.mark.parametrize(
    ("end", "waits", "said"),
    [
        (4, {QUEUE: 4}, None),
        (5, {QUEUE: 4}, "orders/shard-0/0: offsets 4 to 4"),
        (10, {OTHER: 0}, None),
        (12, {OTHER: 0}, "orders/shard-0/0: offsets 10 to 11"),
    ],
)
def test_rows_may_only_go_from_the_input_once_their_windows_are_closed(
    tmp_path: Path, end: int, waits: dict[MessageQueue, int], said: str | None
) -> None:
    table, first = TableWriter(tmp_path / "lake"), Incarnation(1 << 62, 1 << 62)
    table.begin()
    land(table, Landed(QUEUE, 0, 10), Landed(OTHER, 0, 2), made=first)
    lake, how = Lake(table), wanted(tmp_path)
    had = read(lake, *waits.items())
    land(table, Landed(QUEUE, 10, 20), made=first)
    gone = Upkeep(removed=("date=2026-11-01/000000000001-00000.parquet",), rows=0)
    (keeper := TableWriter(table.path)).join()
    keeper.maintain(replace(gone, expired=(Landed(QUEUE, 0, end),)))
    lake.refresh()
    if said is None:
        assert mark_of(lake, how, had, skips=False) == had.mark
        return
    with pytest.raises(TableError, match=f"{said} went before their windows were closed"):
        mark_of(lake, how, had, skips=False)
    assert mark_of(lake, how, had, skips=True) == had.mark
    assert lost(lake, replace(how, topics=("refunds",)), had) is None


def test_rows_of_a_topic_that_was_made_anew_are_missed_too(tmp_path: Path) -> None:
    first, second = (Incarnation(number, number) for number in (1 << 62, (1 << 62) + 1))
    table = TableWriter(tmp_path / "lake")
    table.begin()
    land(table, Landed(QUEUE, 0, 10), made=first)
    land(table, Landed(QUEUE, 0, 4), made=second)
    lake, how = Lake(table), wanted(tmp_path)
    (keeper := TableWriter(table.path)).join()
    had = read(lake, opened=2)
    keeper.maintain(Upkeep(removed=("date=2026-11-01/000000000001-00000.parquet",)))
    lake.refresh()
    assert lost(lake, how, had) is None, "their windows were closed"
    assert "made anew since" in str(lost(lake, how, replace(had, mark={**had.mark, "open": 1})))


def test_figures_are_of_one_table(tmp_path: Path) -> None:
    table, first = TableWriter(tmp_path / "lake"), Incarnation(1 << 62, 1 << 62)
    table.begin()
    land(table, Landed(QUEUE, 0, 10), made=first)
    lake, how = Lake(table), wanted(tmp_path)
    had = read(lake, (QUEUE, 3))
    assert mark_of(lake, how, None, skips=False) == {}
    assert mark_of(lake, how, had, skips=False) == had.mark
    shutil.rmtree(table.path)
    (anew := TableWriter(table.path)).begin()
    land(anew, Landed(QUEUE, 0, 12), made=first)
    lake = Lake(anew)
    with pytest.raises(TableError, match="was removed and made anew since figures were made"):
        mark_of(lake, how, had, skips=False)
    found = mark_of(lake, how, had, skips=True)
    assert found == {**had.mark, "readTo": -1, "open": 0, "waits": []}, "all that is there is read"
    assert list(new_in(lake, how, had)) == [Landed(QUEUE, 10, 12)]
