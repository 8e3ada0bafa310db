"""What may be aggregated, and when windows are closed; without Spark and brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_client.message_queue import MessageQueue
from imago_spark.errors import OptionError
from imago_spark.incarnations import Incarnation
from imago_spark.pipelines.aggregate.aggregating import new_in
from imago_spark.pipelines.aggregate.windows import OWN, Aggregation, aggregation
from imago_spark.pipelines.settings import load
from imago_spark.pipelines.tables.commits import Commit, Landed, StagedBatch
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
