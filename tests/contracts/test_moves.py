"""What every coordinator promises about drains, and about shards that are taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.cluster.metaq_tree.metaq_progress import position
from imago_broker.cluster.ports import shared_marks
from imago_broker.cluster.tree import Create
from imago_broker.model.names import reply_topic
from imago_broker.model.registry.cluster import PERM_READ, ShardQueues
from imago_broker.ports import CoordinatorConflictError, CoordinatorError
from imago_testing.clusters.registry import CONFIG, Registry, broker, topic, until

if TYPE_CHECKING:
    from imago_broker.cluster.coordinator import TreeCoordinator


METAQ_FOLDERS = ("", "/offsets", "/offsets/orders", "/ids")


async def two_shards(registry: Registry) -> tuple[TreeCoordinator, TreeCoordinator]:
    one, two = await registry.join(), await registry.join()
    await one.register(broker("disk-a"))
    await two.register(broker("disk-b", shard=1))
    return one, two


async def test_a_drain_cordons_and_is_seen_until_it_is_taken_back(registry: Registry) -> None:
    one, two = await two_shards(registry)
    await one.marks.drain_shard(0, "r-1")
    await one.marks.drain_shard(0, "r-2")
    view = await until(two, lambda view: bool(view.draining))
    assert [set(n) for n in (view.draining, view.cordoned, view.drained)] == [{0}, {0}, set()]
    await one.marks.note_drained(0, True)
    assert one.view().drained == {0}
    await two.marks.undrain_shard(0)
    view = await until(one, lambda view: not view.draining)
    assert (view.cordoned, view.drained) == (frozenset(), frozenset())
    await one.marks.note_drained(0, True)
    assert one.view().drained == frozenset(), "nobody drains it any more"


async def test_a_late_repeat_of_a_drain_that_was_taken_back_is_refused(
    registry: Registry,
) -> None:
    one, _ = await two_shards(registry)
    await one.marks.drain_shard(0, "r-1")
    await one.marks.undrain_shard(0)
    await one.marks.undrain_shard(0)
    with pytest.raises(CoordinatorConflictError, match="taken back"):
        await one.marks.drain_shard(0, "r-1")
    await one.marks.drain_shard(0, "r-2")
    assert one.view().draining == {0}
    with pytest.raises(CoordinatorError, match="never been a shard-9, or it is gone"):
        await one.marks.drain_shard(9, "r-3")


async def test_a_shard_is_forgotten_when_it_is_drained_and_nobody_runs(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await two_shards(registry)
    await one.publish_topics([topic("both"), topic("only-0")])
    await two.publish_topics([topic("both", shard=1), topic("only-1", shard=1)])
    with pytest.raises(CoordinatorConflictError, match=r"live brokers: 127\.0\.0\.1:10921"):
        await one.marks.forget_shard(1)
    await two.stop()
    await until(one, lambda view: view.shards() == (0,))
    with pytest.raises(CoordinatorConflictError, match="not drained"):
        await one.marks.forget_shard(1)
    await one.marks.mark_shard(1, drained=True)
    with pytest.raises(CoordinatorConflictError, match=r"given topics .* \(both, only-1\)"):
        await one.marks.forget_shard(1)
    monkeypatch.setattr(shared_marks, "TAKERS_NAMED_MAX", 1)
    with pytest.raises(CoordinatorConflictError, match=r"given topics .* \(both\)"):
        await one.marks.forget_shard(1)
    two = await registry.join()
    await two.register(broker("disk-b", shard=1))
    sealed = {1: ShardQueues(0, 4, perm=PERM_READ)}
    await two.publish_topics([topic(name, shards=sealed) for name in ("both", "only-1")])
    await two.stop()
    await until(one, lambda view: view.shards() == (0,) and not view.topics["both"].shards[1].write)
    await one.marks.forget_shard(1)
    view = one.view()
    assert set(view.known) == {0}
    assert {name: set(found.shards) for name, found in view.topics.items()} == {
        "both": {0}, "only-0": {0},
    }  # fmt: skip
    with pytest.raises(CoordinatorError, match="never been a shard-1, or it is gone"):
        await one.marks.forget_shard(1)
    again = await registry.join()
    await again.register(broker("disk-c", shard=1))
    assert (await until(one, lambda view: 1 in view.known)).known[1] == {"disk-c": 0}


async def test_offsets_of_metaqs_groups_go_with_the_shard(registry: Registry) -> None:
    """One that gets its number later has other messages at these positions."""
    one, two = await two_shards(registry)
    root, base = "/meta/consumers", CONFIG.metaq_broker_id_base
    for path in (root, *(f"{root}/g{part}" for part in METAQ_FOLDERS)):
        await one._tree.commit([Create(path)])
    names = [f"{base + shard}-{partition}" for shard in (0, 1) for partition in (0, 1)]
    for name in (*names, f"{base + 1}-x", f"{base + 11}-0"):
        await one._tree.commit([Create(f"{root}/g/offsets/orders/{name}", b"5-44")])
    await one.marks.mark_shard(1, drained=True)
    await two.stop()
    await until(one, lambda view: view.shards() == (0,) and 1 in view.drained)
    await one.marks.forget_shard(1)
    kept = {*names[:2], f"{base + 1}-x", f"{base + 11}-0"}
    assert set(await one._tree.children(f"{root}/g/offsets/orders")) == kept


async def test_topics_count_by_whose_they_are_and_not_by_how_their_names_look(
    registry: Registry,
) -> None:
    one, two = await two_shards(registry)
    made_by_shards = ("TBW102", reply_topic(CONFIG.cluster), "SCHEDULE_TOPIC_XXXX")
    of_clients = ("BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC", "orders_REPLY_TOPIC", "rmq_sys_x")
    await two.publish_topics([topic(n, shard=1) for n in (*made_by_shards, *of_clients)])
    await one.marks.mark_shard(1, drained=True)
    await two.stop()
    await until(one, lambda view: view.shards() == (0,) and 1 in view.drained)
    listed = r"BenchmarkTest, TRANS_CHECK_MAX_TIME_TOPIC, orders_REPLY_TOPIC, rmq_sys_x\)"
    with pytest.raises(CoordinatorConflictError, match=rf"given topics .* \({listed}"):
        await one.marks.forget_shard(1)


async def test_progress_of_metaq_consumers_is_read_where_they_write_it(
    registry: Registry,
) -> None:
    _, two = await two_shards(registry)
    assert await two.metaq_consumers.metaq_progress(["orders"]) == {}
    root = "/meta/consumers"
    folders = ("", "/g", "/g/offsets", "/g/offsets/orders", "/g/offsets/other", "/idle")
    there = ("/there", "/there/offsets", "/there/offsets/orders", "/new", "/new/ids")
    for path in (*folders, *there):
        await two._tree.commit([Create(root + path)])
    found = {"1-0": b"-77-44", "1-1": b"garbage", "0-0": b"5-9", "1-x": b"5-9"}
    for name, data in found.items():
        await two._tree.commit([Create(f"{root}/g/offsets/orders/{name}", data)])
    await two._tree.commit([Create(f"{root}/g/offsets/other/1-0", b"5-9")])
    # Who reads it, and has no offset here, has read nothing here.
    await two._tree.commit([Create(f"{root}/there/offsets/orders/0-0", b"5-9")])
    await two._tree.commit([Create(f"{root}/new/ids/host-1", b"payments,orders")])
    assert await two.metaq_consumers.metaq_progress(["orders", "unknown"]) == {
        "orders": {"g": {0: 44, 1: 0}, "there": {}, "new": {}}
    }


async def test_only_the_groups_of_metaq_that_are_asked_for_are_looked_at(
    registry: Registry,
) -> None:
    _, two = await two_shards(registry)
    assert await two.metaq_consumers.metaq_members(["g", "h"]) == {"g": (), "h": ()}
    root = "/meta/consumers"
    folders = [root, *(f"{root}/{g}{part}" for g in ("g", "h") for part in METAQ_FOLDERS)]
    for path in folders:
        await two._tree.commit([Create(path)])
    for group in ("g", "h"):
        await two._tree.commit([Create(f"{root}/{group}/offsets/orders/1-0", b"5-44")])
    await two._tree.commit([Create(f"{root}/g/ids/host-1", b"orders")])
    assert await two.metaq_consumers.metaq_progress(["orders"], ["g"]) == {"orders": {"g": {0: 44}}}
    assert await two.metaq_consumers.metaq_progress(["orders"], ["unknown"]) == {}
    assert set(await two.metaq_consumers.metaq_progress(["orders"])) == {"orders"}
    assert await two.metaq_consumers.metaq_members(["g", "h"]) == {"g": ("host-1",), "h": ()}


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"-1-0", 0), (b"5-44", 44), (b"44", 44), (b"-44", 0), (b"", 0), (b"1-\xff", 0), (b"1-", 0)],
)
def test_a_position_stands_behind_the_last_hyphen(data: bytes, expected: int) -> None:
    assert position(data) == expected


async def test_a_shard_whose_topics_stay_is_told_apart(registry: Registry) -> None:
    one, two = await two_shards(registry)
    await one.marks.drain_shard(0, "r-1", move=False)
    view = await until(two, lambda view: bool(view.staying))
    assert [set(n) for n in (view.draining, view.staying, view.cordoned)] == [{0}, {0}, {0}]
    with pytest.raises(CoordinatorConflictError, match="in another way"):
        await two.marks.drain_shard(0, "r-2")
    await two.marks.drain_shard(0, "r-3", move=False)
    await two.marks.undrain_shard(0)
    assert (two.view().draining, two.view().staying) == (frozenset(), frozenset())
    await two.marks.drain_shard(0, "r-4")
    assert (set(two.view().draining), two.view().staying) == ({0}, frozenset())
    with pytest.raises(CoordinatorConflictError, match="in another way"):
        await two.marks.drain_shard(0, "r-5", move=False)
