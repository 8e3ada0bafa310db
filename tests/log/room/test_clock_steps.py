"""The wall clock jumps: nothing goes that is younger than told, and nothing stands still."""

from __future__ import annotations

from itertools import pairwise

import pytest

from imago_log import MessageStore
from imago_log.lifecycle.retention import DOUBT_MS_MAX, STEP_MS_MIN, AgeClock
from imago_testing.stores.in_memory import START_MS, FakeClock, Model, small_config
from imago_testing.stores.vfs import MemoryVfs

HOUR = 3600 * 1000
DAY = 24 * HOUR


class Clocked:
    """A store between two clocks."""

    def __init__(self) -> None:
        self.vfs, self.model = MemoryVfs(), Model()
        self.wall, self.monotonic = FakeClock(), FakeClock(5_000)
        self.open()
        self.store.create_topic("T", {})

    def open(self) -> None:
        self.store = MessageStore.open(
            small_config(retention_ms=3 * DAY),
            clock=self.wall,
            monotonic=self.monotonic,
            vfs=self.vfs,
            threaded=False,
        )

    def live(self, ms: int, step_ms: int = HOUR) -> None:
        """Time passes, and a message comes now and then."""
        for _ in range(ms // step_ms):
            self.wall.now_ms += step_ms
            self.monotonic.now_ms += step_ms
            self.model.send(self.store, [("T", 0, 500)])
            self.store.tick()

    def ticks(self) -> None:
        for _ in range(20):
            self.wall.now_ms += 1000
            self.monotonic.now_ms += 1000
            self.store.tick()


def test_without_steps_old_files_go() -> None:
    clocked = Clocked()
    clocked.live(9 * DAY)
    assert len(clocked.model.sent) - clocked.store.queue_range("T", 0)[0] >= 3 * DAY // HOUR
    assert clocked.store.log_start > 0


@pytest.mark.parametrize("restart", [False, True], ids=["alive", "started meanwhile"])
def test_a_day_ahead_and_back_deletes_nothing(restart: bool) -> None:
    clocked = Clocked()
    clocked.live(2 * DAY + 20 * HOUR)
    assert clocked.store.log_start == 0
    clocked.wall.now_ms += DAY
    if restart:
        clocked.store.close()
        clocked.open()
    clocked.ticks()
    clocked.live(5 * HOUR // 6, HOUR // 6)
    assert clocked.store.log_start == 0, "the oldest is not three days old"
    clocked.wall.now_ms -= DAY
    clocked.ticks()
    assert clocked.store.log_start == 0
    clocked.live(4 * DAY)
    assert clocked.store.log_start > 0, "it goes on"
    clocked.model.check(clocked.store)


def test_files_with_times_of_the_future_grow_old_too() -> None:
    clocked = Clocked()
    clocked.wall.now_ms += 400 * DAY
    clocked.live(6 * HOUR)
    clocked.wall.now_ms -= 400 * DAY
    clocked.live(8 * DAY)
    kept = len(clocked.model.sent) - clocked.store.queue_range("T", 0)[0]
    assert 3 * DAY // HOUR <= kept < 4 * DAY // HOUR


def test_views_are_synced_after_the_clock_went_back() -> None:
    clocked = Clocked()
    clocked.wall.now_ms += DAY
    clocked.live(HOUR)
    clocked.ticks()
    clocked.wall.now_ms -= DAY
    ends = []
    for _ in range(3):
        clocked.model.send(clocked.store, [("T", 0, 100)])
        clocked.ticks()
        ends.append(clocked.store.components.storage.checkpointer.views_synced)
        assert ends[-1] == clocked.store.log_end
    assert all(before < after for before, after in pairwise(ends))


def test_a_step_that_lasts_is_believed() -> None:
    for step in (STEP_MS_MIN + 1, HOUR, DAY, 40 * 365 * DAY):
        clock = AgeClock(START_MS)
        assert clock.now(START_MS, 0) == START_MS
        doubt = min(step, DOUBT_MS_MAX)
        for passed in (0, doubt // 2, doubt - 1):
            assert clock.now(START_MS + step + passed, passed) == START_MS + passed
        assert clock.now(START_MS + step + doubt, doubt) == START_MS + step + doubt
        assert clock.now(START_MS + step + doubt + 9, doubt + 9) == START_MS + step + doubt + 9


def test_small_steps_and_steps_back_are_believed_at_once() -> None:
    clock = AgeClock(0)
    assert clock.now(START_MS, 700) == START_MS, "nothing is known before"
    assert clock.now(START_MS + STEP_MS_MIN, 700) == START_MS + STEP_MS_MIN
    assert clock.now(START_MS - DAY, 800) == START_MS - DAY
    assert clock.now(START_MS, 900) == START_MS - DAY + 100, "ahead again"
