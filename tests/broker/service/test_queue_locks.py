"""Locks of orderly consumers, at a time that the test turns."""

from __future__ import annotations

from imago_broker.service.locks import QueueLocks

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
