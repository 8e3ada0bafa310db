"""Locks of orderly consumers, at a time that the test turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.service.groups import locks as locks_module
from imago_broker.service.groups.locks import KIND, QueueLocks
from imago_broker.service.groups.resets import PendingResets
from imago_log.errors import StoreClosedError

if TYPE_CHECKING:
    from collections.abc import Sequence

Q0, Q1 = ("shard-0", "T", 0), ("shard-0", "T", 1)


def test_lock_is_renewed_by_its_client_and_refused_to_others() -> None:
    locks = QueueLocks(life_ms=60)
    assert locks.lock("G", "one", [Q0, Q1], now_ms=0) == [Q0, Q1]
    assert locks.lock("G", "two", [Q0], now_ms=60) == []
    assert locks.lock("G", "one", [Q0], now_ms=60) == [Q0]
    assert locks.lock("G", "two", [Q0, Q1], now_ms=100) == [Q1]
    assert locks.lock("other", "two", [Q0], now_ms=100) == [Q0]


def test_lock_that_nobody_renewed_may_be_taken() -> None:
    locks = QueueLocks(life_ms=60)
    locks.lock("G", "one", [Q0], now_ms=0)
    assert locks.any_held("G", now_ms=60)
    assert not locks.any_held("G", now_ms=61)
    assert locks.lock("G", "two", [Q0], now_ms=61) == [Q0]


def test_lock_is_given_up_by_its_client_only() -> None:
    locks = QueueLocks()
    locks.lock("G", "one", [Q0, Q1], now_ms=0)
    locks.unlock("G", "two", [Q0])
    assert locks.lock("G", "two", [Q0], now_ms=0) == []
    locks.unlock("G", "one", [Q0, Q0])
    assert locks.lock("G", "two", [Q0, Q1], now_ms=0) == [Q0]


def test_sweep_forgets_what_has_ended() -> None:
    locks = QueueLocks(life_ms=60)
    locks.lock("G", "one", [Q0], now_ms=0)
    locks.lock("H", "one", [Q0], now_ms=50)
    locks.sweep(now_ms=61)
    assert not locks.any_held("G", now_ms=0)
    assert locks.any_held("H", now_ms=61)


def test_locks_are_limited() -> None:
    locks = QueueLocks(locks_max=3)
    queues = [("shard-0", "T", n) for n in range(5)]
    assert locks.lock("G", "one", queues, now_ms=0) == queues[:3]
    assert locks.lock("H", "one", queues, now_ms=0) == []
    locks.unlock("G", "one", queues)
    assert locks.lock("H", "one", queues, now_ms=0) == queues[:3]


class Log:
    """Metadata as a store keeps it."""

    def __init__(self) -> None:
        self.saved: dict[str, Any] = {}
        self.writes = 0

    def put_meta(self, changes: Sequence[tuple[str, str, Any]]) -> int:
        self.writes += 1
        for kind, key, value in changes:
            assert kind == KIND
            if value is None:
                self.saved.pop(key, None)
            else:
                self.saved[key] = value
        return self.writes


def save(locks: QueueLocks, log: Log) -> None:
    store: Any = log
    locks.save(store)


def test_next_master_honours_what_the_log_says_for_a_full_life() -> None:
    log, locks, others = Log(), QueueLocks(life_ms=60), QueueLocks(life_ms=60)
    strange = ("shard@0", 'T"', 7)
    locks.lock("G", "one", [Q0, Q1, strange], now_ms=0)
    locks.lock("H", "two", [Q0], now_ms=0)
    locks.unlock("G", "one", [Q1])
    save(locks, log)
    others.lock("G", "stale", [Q0], now_ms=999)
    others.load(log.saved, now_ms=1000)
    assert others.lock("G", "two", [Q0, Q1, strange], now_ms=1060) == [Q1]
    assert others.lock("G", "one", [Q0, strange], now_ms=1060) == [Q0, strange]
    assert others.lock("H", "one", [Q0], now_ms=1061) == [Q0]


def test_renewals_write_nothing_and_ends_are_written() -> None:
    log, locks = Log(), QueueLocks(life_ms=60)
    locks.lock("G", "one", [Q0], now_ms=0)
    save(locks, log)
    locks.lock("G", "one", [Q0], now_ms=30)
    save(locks, log)
    assert log.writes == 1
    locks.lock("G", "two", [Q0], now_ms=100)
    save(locks, log)
    assert list(log.saved.values()) == ["two"]
    locks.sweep(now_ms=200)
    save(locks, log)
    assert (log.saved, log.writes) == ({}, 3)


def test_owners_that_could_not_be_written_are_written_later() -> None:
    class Full(Log):
        def put_meta(self, changes: Sequence[tuple[str, str, Any]]) -> int:
            del changes
            raise StoreClosedError("closed")

    log, locks = Log(), QueueLocks()
    locks.lock("G", "one", [Q0], now_ms=0)
    with pytest.raises(StoreClosedError):
        save(locks, Full())
    locks.lock("G", "one", [Q0], now_ms=1)
    save(locks, log)
    assert list(log.saved.values()) == ["one"]


def test_entries_that_nobody_understands_are_passed_over() -> None:
    locks = QueueLocks()
    bad = {"": "a", "[]": "a", "[1,2,3,4,5]": "a", '["G","b","T","x"]': "a", "{}": "a", "7": "a"}
    locks.load({**bad, '["G","shard-0","T",0]': "one"}, now_ms=0)
    assert locks.lock("G", "two", [Q0, Q1], now_ms=0) == [Q1]


@pytest.mark.parametrize("at_once", [1, 2, 2000])
def test_changes_of_locks_are_written_in_pieces(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_module, "CHANGES_MAX", at_once)
    written: list[int] = []
    log: dict[str, Any] = {}

    class Log:
        def put_meta(self, changes: Sequence[Any]) -> None:
            written.append(len(changes))
            log.update({key: owner for _, key, owner in changes})

    locks, queues = QueueLocks(), [("shard-0", "T", n) for n in range(5)]
    locks.lock("G", "one", queues, now_ms=0)
    locks.save(cast("Any", Log()))
    assert max(written) <= at_once
    read = QueueLocks()
    read.load(log, now_ms=0)
    assert read.lock("G", "two", queues, now_ms=0) == []
    assert read.lock("G", "one", queues, now_ms=0) == queues


def test_the_oldest_reset_goes_when_there_are_too_many() -> None:
    resets = PendingResets(resets_max=2)
    for queue_id in range(3):
        resets.add("G", "T", queue_id, 7)
    assert [resets.pending("G", "T", n) for n in range(3)] == [False, True, True]


def test_a_reset_that_is_set_again_takes_no_other_ones_place() -> None:
    resets = PendingResets(resets_max=2)
    for queue_id in (0, 1, 1):
        resets.add("G", "T", queue_id, 7 + queue_id)
    assert [resets.pending("G", "T", n) for n in range(2)] == [True, True]
    resets.add("G", "T", 2, 9)
    assert [resets.pending("G", "T", n) for n in range(3)] == [False, True, True]
