"""Consumer offsets: gathered, written before they are told, found again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.service.groups.offsets import CHANGES_MAX, ConsumerOffsets
from imago_log.errors import DiskFullError
from imago_testing.stores.manual import ManualStore

if TYPE_CHECKING:
    from imago_log.store import MessageStore


def offsets(store: ManualStore) -> ConsumerOffsets:
    return ConsumerOffsets(cast("MessageStore", store), loop=asyncio.get_running_loop())


async def test_commits_are_one_record_and_a_query_writes_first() -> None:
    store = ManualStore()
    table = offsets(store)
    table.commit("g", "t", 0, 5)
    table.commit("g", "t", 0, 6)
    table.commit("g", "t", 1, 1)
    assert store.meta_writes == []
    assert table.query("g", "t", 0) == 6
    assert store.meta_writes == [[("offset", "g@t@0", 6), ("offset", "g@t@1", 1)]]
    assert table.query("g", "t", 1) == 1
    assert len(store.meta_writes) == 1


async def test_what_was_gathered_is_written_without_a_query() -> None:
    store = ManualStore()
    written = asyncio.Event()
    store.on_meta = written.set
    table = offsets(store)
    table.commit("g", "t", 0, 5)
    await written.wait()
    assert store.metadata["offset"] == {"g@t@0": 5}


async def test_what_finds_no_room_is_written_once_there_is_some() -> None:
    store = ManualStore()
    put, refused, written = store.put_meta, list[int](), asyncio.Event()
    store.on_meta = written.set

    def full(changes: Any) -> Any:
        if len(refused) < 2:
            refused.append(len(changes))
            raise DiskFullError(used_ratio=1.0, limit_ratio=0.9)
        return put(changes)

    store.put_meta = full  # type: ignore[method-assign]  # a disk that is full for a while
    table = offsets(store)
    table.commit("g", "t", 0, 5)
    with pytest.raises(DiskFullError):
        table.query("g", "t", 0)
    table.commit("g", "t", 0, 6)
    await written.wait()
    assert (refused, store.metadata["offset"]) == ([1, 1], {"g@t@0": 6})


async def test_unknown_is_none_and_a_repeated_commit_writes_nothing() -> None:
    store = ManualStore()
    table = offsets(store)
    assert table.query("g", "t", 0) is None
    table.commit("g", "t", 0, 5)
    table.flush()
    table.commit("g", "t", 0, 5)
    table.flush()
    assert len(store.meta_writes) == 1


async def test_next_process_finds_them() -> None:
    store = ManualStore()
    first = offsets(store)
    first.commit("%RETRY-g", "a.b", 3, 7)
    first.flush()
    second = offsets(store)
    assert second.query("%RETRY-g", "a.b", 3) == 7
    assert second.groups() == ["%RETRY-g"]


async def test_views_by_group_and_by_topic() -> None:
    table = offsets(ManualStore())
    table.commit("g", "t", 0, 1)
    table.commit("g", "u", 0, 2)
    table.commit("h", "t", 1, 3)
    assert table.of_group("g") == {"t": {0: 1}, "u": {0: 2}}
    assert table.of_topic("t") == {"g": {0: 1}, "h": {1: 3}}


async def test_reset_is_written_at_once_and_may_go_back() -> None:
    store = ManualStore()
    table = offsets(store)
    table.commit("g", "t", 0, 100)
    table.reset("g", "t", {0: 5, 1: 6})
    assert store.metadata["offset"] == {"g@t@0": 5, "g@t@1": 6}


async def test_forgotten_group_and_topic_are_gone_for_the_next_process_too() -> None:
    store = ManualStore()
    table = offsets(store)
    table.commit("g", "t", 0, 1)
    table.commit("h", "t", 0, 1)
    table.commit("h", "u", 0, 1)
    table.forget_group("g")
    table.forget_topic("u")
    assert table.groups() == ["h"]
    assert offsets(store).of_group("h") == {"t": {0: 1}}
    assert offsets(store).of_group("g") == {}


async def test_many_commits_are_written_in_bounded_records() -> None:
    store = ManualStore()
    table = offsets(store)
    for queue_id in range(CHANGES_MAX + 1):
        table.commit("g", "t", queue_id, 1)
    table.flush()
    assert [len(changes) for changes in store.meta_writes] == [CHANGES_MAX, 1]


async def test_entry_that_nobody_understands_costs_only_itself() -> None:
    store = ManualStore()
    store.put_meta([("offset", key, 5) for key in ("", "g", "g@t", "g@t@x", "g@t@0", "a@b@t@1")])
    store.put_meta([("offset", "g@t@7", "much"), ("offset", "g@t@8", [1])])
    table = offsets(store)
    assert table.of_group("g") == {"t": {0: 5}}
    assert table.query("a@b", "t", 1) == 5
    table.forget_group("a@b")
    assert offsets(store).groups() == ["g"]
