"""Which rows a replay sends in which step, and how fast; without Spark and brokers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from imago_client.message_queue import MessageQueue
from imago_spark.errors import SourceError
from imago_spark.pacing import SendPace
from imago_spark.pipelines.replay import journal, replaying
from imago_spark.pipelines.replay.slices import OWN, Plan, Slice, chosen, planned, slice_of
from imago_spark.pipelines.settings import load
from imago_spark.pipelines.tables.commits import Commit
from imago_spark.pipelines.tables.history import History

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = (MessageQueue("orders", "shard-0", number) for number in range(2))
LEAST = {"id": "again", "topic": "replayed"}


def wanted(folder: Path, checkpoint: str = "/checkpoint", **own: object) -> Slice:
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (LEAST | own).items())
    (folder / "replay.toml").write_text(
        'bootstrap = "b:9876"\ntopics = ["orders"]\npath = "/lake"\nmaxRowsPerTrigger = 10\n'
        f'checkpoint = "{checkpoint}"\n[config]\n{lines}\n'
    )
    return slice_of(load(folder / "replay.toml", None, OWN))


def history(**more: Any) -> History:
    had = {FIRST: [(0, 20), (25, 40)], SECOND: [(5, 9)]} | more.get("ranges", {})
    return History(Commit(number=1, epoch=0, run="r", ends={}), ranges=had)


def test_a_slice_is_what_the_table_has_of_it(tmp_path: Path) -> None:
    assert chosen(history(), wanted(tmp_path)) == history().ranges
    offsets = {"orders": {"shard-0": {"0": 10, "1": -2}}}
    ends = {"orders": {"shard-0": {"0": 30}}}
    cut = wanted(tmp_path, startingOffsets=json.dumps(offsets), endingOffsets=json.dumps(ends))
    assert chosen(history(), cut) == {FIRST: [(10, 20), (25, 30)], SECOND: [(5, 9)]}
    assigned = wanted(tmp_path, assign='{"orders": {"shard-0": [1]}}')
    assert chosen(history(), assigned) == {SECOND: [(5, 9)]}


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"topic": "orders"}, "is a topic that the table is of"),
        ({"id": ""}, "id: must be a text"),
        ({"id": "../x"}, "cannot be the name of a file"),
        ({"rowsPerSecond": 0}, "rowsPerSecond: 0, must be a whole number"),
        ({"queueBy": "luck"}, "must be key or roundRobin or column"),
        ({"startingOffsets": "latest"}, "must be earliest or offsets of queues"),
        ({"assign": '{"refunds": {"shard-0": [0]}}'}, "names a topic that is none of topics"),
        ({"startingTimestamp": "noon"}, "startingTimestamp"),
        ({"assign": '{"orders": {"shard-0": [7]}}'}, "orders/shard-0/7: the table has no such"),
    ],
)
def test_what_cannot_be_replayed_is_named(tmp_path: Path, own: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceError, match=said):
        chosen(history(), (found := wanted(tmp_path, **own))), journal.place("/c", found)
    with pytest.raises(SourceError, match="must be a folder of a mounted volume"):
        journal.place("s3a://bucket/steps", wanted(tmp_path))


def plan_of(found: Slice, had: History | None = None, table: str = "one", **sums: int) -> Plan:
    had = had or history()
    spans = {FIRST: (3, had.ranges[FIRST][-1][1]), SECOND: (5, 9)}
    return planned(found, table, had, had.ranges, spans, **SUMS | sums)


SUMS = {"rows": 36, "bytes": 360, "left_out": 1}


def test_steps_have_each_row_once_and_go_on_in_all_queues_side_by_side(tmp_path: Path) -> None:
    plan = plan_of(wanted(tmp_path))
    assert plan.steps == 4
    parts = [plan.part(step) for step in range(plan.steps)]
    seen = [at for part in parts for start, end in part[FIRST] for at in range(start, end)]
    assert seen == [*range(3, 20), *range(25, 40)]
    assert [part[SECOND] for part in parts] == [[(at, at + 1)] for at in range(5, 9)]


def test_a_journal_keeps_the_plan_and_knows_another_slice(tmp_path: Path) -> None:
    found = wanted(tmp_path)
    path = journal.place(str(tmp_path / "steps"), found)
    assert journal.read(path, found) is None
    kept = journal.Journal(path, plan_of(found))
    kept.finish(2)
    assert journal.read(path, found) == kept
    assert kept.done == 3
    assert journal.read(path, wanted(tmp_path, rowsPerSecond=7)) == kept, "a pace may change"
    with pytest.raises(SourceError, match="was begun with other settings"):
        journal.read(path, wanted(tmp_path, queueBy="roundRobin"))
    path.write_text('{"format": 1}')
    with pytest.raises(SourceError, match="this version knows 2"):
        journal.read(path, found)


def test_what_the_table_has_lost_of_a_plan_is_not_sent(tmp_path: Path) -> None:
    """A step with fewer rows than before would take others for those that are sent."""
    plan = plan_of(wanted(tmp_path))
    later = replace(history(ranges={FIRST: [(25, 90)]}))
    plan.check("one", history(ranges={FIRST: [(0, 20), (25, 90)]}), 0)
    with pytest.raises(SourceError, match="does not have all rows from 13 to 39 any more"):
        plan.check("one", later, 1)
    plan.check("one", later, 3)


def test_a_plan_is_of_one_table_and_of_the_topics_that_it_had(tmp_path: Path) -> None:
    plan, now = plan_of(wanted(tmp_path)), history()
    with pytest.raises(SourceError, match="was removed and made anew since"):
        plan.check("another", now, 0)
    now.since["orders", "shard-0"] = 7
    with pytest.raises(SourceError, match="or the topic was made anew"):
        plan.check("one", now, 0)
    made = plan_of(wanted(tmp_path), now)
    made.check("one", now, 0)
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_a_batch_is_a_repeat_only_if_all_is_the_same_that_says_what_it_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, grown = plan_of(wanted(tmp_path)), history(ranges={FIRST: [(0, 20), (25, 45)]})
    anew = history()
    anew.since["orders", "shard-0"] = 7
    others = [
        plan_of(wanted(tmp_path), grown),
        plan_of(wanted(tmp_path), anew),
        plan_of(wanted(tmp_path), table="two"),
        plan_of(wanted(tmp_path), rows=35, left_out=2),
        plan_of(wanted(tmp_path, queueBy="roundRobin")),
    ]
    assert {one.steps for one in others} == {plan.steps}
    names = [sink_id(one, tmp_path, monkeypatch) for one in [plan, *others]]
    assert len({*names}) == len(names)
    again = plan_of(wanted(tmp_path))
    assert sink_id(again, tmp_path, monkeypatch) == names[0], "its checkpoint was lost"


def test_an_id_stands_for_one_plan_whatever_checkpoint_it_has(tmp_path: Path) -> None:
    found, table = wanted(tmp_path), tmp_path / "lake"
    (table / "_imago").mkdir(parents=True)
    first, second = (tmp_path / name / "again.json" for name in ("one", "two"))
    journal.claim(table, found, journal.Journal(first, plan_of(found)))
    journal.claim(table, found, journal.Journal(second, plan_of(found)))
    grown = plan_of(found, history(ranges={FIRST: [(0, 20), (25, 45)]}))
    with pytest.raises(SourceError, match=f"as {first} says: with this checkpoint rows would be"):
        journal.claim(table, found, journal.Journal(second, grown))
    journal.claim(table, replace(found, id="other"), journal.Journal(second, grown))
    (table / "_imago" / "replays" / "again.json").write_text("{}")
    with pytest.raises(SourceError, match="KeyError"):
        journal.claim(table, found, journal.Journal(first, plan_of(found)))


def sink_id(plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what names the batches of a plan to brokers."""
    frame = Mock()
    monkeypatch.setattr(replaying, "build", lambda *_: frame)
    writer = frame.write.format.return_value.options.return_value
    writer.option.return_value = writer
    replaying.send(None, None, wanted(folder), plan, 0)  # type: ignore[arg-type]
    return str(dict(call.args for call in writer.option.call_args_list)["sinkId"])


def test_a_pace_holds_over_requests_and_after_the_last() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = SendPace(100, lambda: now[0], sleep)
    for rows in (50, 100, 100):
        pace.take(rows)
    assert now == [1.5]
    now[0] = 60.0  # a pause is not made up for
    pace.take(100)
    pace.take(100)
    pace.rest()
    assert (slept, now) == ([0.5, 1.0, 1.0, 1.0], [62.0])
    free = SendPace(None, lambda: now[0], sleep)
    free.take(1_000_000)
    free.rest()
    assert now == [62.0]
