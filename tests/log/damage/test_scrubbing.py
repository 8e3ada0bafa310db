"""Verification in the background: damage that nobody reads, and views that are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.stores.in_memory import DATA, FakeClock, Model, open_store, small_config
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from imago_log import MessageStore

FILE = 4096
DAY_MS = 24 * 3600 * 1000
MATERIALISED = {"attributes": {"materialised": "true"}}


class Scrubbed:
    """A store of a few log files, opened again so that nothing of it is in memory."""

    def __init__(self, **changes: int) -> None:
        self.vfs, self.model, self.clock = MemoryVfs(), Model(), FakeClock()
        self.changes = changes
        self.store = self.open()
        self.store.create_topic("T", MATERIALISED)
        self.store.create_topic("U", {})
        for at in range(40):
            self.model.send(self.store, [("T", at % 2, 80), ("U", 0, 60)])
        self.again()

    def open(self) -> MessageStore:
        return open_store(self.vfs, self.clock, **self.changes)

    def again(self) -> None:
        self.store.close()
        self.store = self.open()

    def flip_log(self, place: int) -> None:
        path = DATA / "commitlog" / f"{place - place % FILE:020d}"
        self.vfs.flip_bit(path, place % FILE)

    def pass_once(self) -> None:
        passes = self.store.components.scrubber.counts.passes
        while self.store.components.scrubber.counts.passes == passes:
            self.clock.now_ms += 1000
            self.store.tick()

    def next_pass(self) -> None:
        self.clock.now_ms += DAY_MS
        self.pass_once()


def test_a_whole_store_is_read_once_a_day() -> None:
    scrubbed = Scrubbed()
    store, end = scrubbed.store, scrubbed.store.log_end
    scrubbed.pass_once()
    counts = store.components.scrubber.counts
    assert end - len(range(0, end, FILE)) * 400 < counts.bytes_verified <= end
    assert counts.views_mended == 0
    for _ in range(10):
        scrubbed.clock.now_ms += 60_000
        store.tick()
    assert store.components.scrubber.counts == counts, "not again before a day is over"
    scrubbed.next_pass()
    assert store.components.scrubber.counts.passes == 2
    assert store.damaged_ranges() == ()
    scrubbed.model.check(store)
    store.close()


def test_damage_that_nobody_reads_is_found_and_noted() -> None:
    scrubbed = Scrubbed()
    sent = scrubbed.model.sent
    victims = [sent[0], sent[20], sent[21], sent[-1]]
    for victim in victims:
        scrubbed.flip_log(victim.place + 50)
    told: list[int] = []
    scrubbed.store.on_damage.add(lambda found: told.append(found.start))
    scrubbed.pass_once()
    assert sorted(told) == [victims[0].place, victims[1].place, victims[3].place]
    ranges = [(each.start, each.end) for each in scrubbed.store.damaged_ranges()]
    assert ranges[1] == (victims[1].place, victims[2].end)
    scrubbed.again()
    assert [(each.start, each.end) for each in scrubbed.store.damaged_ranges()] == ranges
    scrubbed.store.close()


def test_a_blank_record_is_verified_too() -> None:
    scrubbed = Scrubbed()
    last = max(sent.end for sent in scrubbed.model.sent if sent.place < FILE)
    scrubbed.flip_log(last + 6)
    scrubbed.pass_once()
    (damaged,) = scrubbed.store.damaged_ranges()
    assert (damaged.start, damaged.end) == (last, FILE)
    scrubbed.model.check(scrubbed.store)
    scrubbed.store.close()


@pytest.mark.parametrize(
    ("name", "unit"),
    [("consumequeue/U/0", 20), ("consumequeue_v/U/0", 12), ("index", 12), ("consumequeue/T/1", 20)],
)
def test_every_flipped_bit_of_a_view_is_put_right(name: str, unit: int) -> None:
    scrubbed = Scrubbed()
    store = scrubbed.store
    scrubbed.model.check(store)
    path = DATA / name / f"{0:020d}"
    whole = scrubbed.vfs.content(path)
    for bit in range(unit * 8):
        scrubbed.vfs.flip_bit(path, 6 * unit + bit // 8, bit % 8)
        mended = store.components.scrubber.counts.views_mended
        scrubbed.next_pass()
        assert store.components.scrubber.counts.views_mended > mended
        assert scrubbed.vfs.content(path) == whole or not scrubbed.vfs.exists(
            DATA / "config" / "views"
        )
        if scrubbed.vfs.content(path) != whole:  # the next start builds it again
            scrubbed.vfs.names_now[path].content[:] = whole
            scrubbed.vfs.put(DATA / "config" / "views", b"1\n")
    assert store.damaged_ranges() == ()
    scrubbed.model.check(store)
    store.close()


def test_metaqs_files_are_compared_byte_for_byte_and_made_anew() -> None:
    scrubbed = Scrubbed()
    store = scrubbed.store
    scrubbed.model.check(store)
    path = DATA / "metaq" / "T-0" / f"{0:020d}.meta"
    whole = scrubbed.vfs.content(path)
    for at in range(0, 130, 3):
        scrubbed.vfs.flip_bit(path, at, at % 8)
        scrubbed.next_pass()
        store.tick()
        assert scrubbed.vfs.content(path) == whole
    scrubbed.model.check(store)
    store.close()


def test_metaqs_files_are_verified_before_they_are_read_for_the_first_time() -> None:
    scrubbed = Scrubbed(scrub_interval_ms=0)
    path = DATA / "metaq" / "T-0" / f"{0:020d}.meta"
    for at in range(20, 100, 7):  # in the body of the first message
        scrubbed.vfs.flip_bit(path, at, at % 8)
        scrubbed.model.check(scrubbed.store)
        scrubbed.store.tick()
        scrubbed.again()
        scrubbed.model.check(scrubbed.store)
        scrubbed.again()
    scrubbed.store.close()


def test_files_that_expire_meanwhile_are_no_damage() -> None:
    scrubbed = Scrubbed(retention_ms=3600_000, scrub_step_bytes_max=FILE)
    store = scrubbed.store
    store.tick()
    assert store.components.scrubber.counts.passes == 0
    scrubbed.clock.now_ms += DAY_MS
    scrubbed.model.send(store, [("U", 0, 900)] * 9)
    store.request_sync()
    for _ in range(30):
        scrubbed.clock.now_ms += 1000
        store.tick()
    assert store.log_start > 0
    assert store.components.scrubber.counts.passes > 0
    assert store.damaged_ranges() == ()
    store.close()


def test_it_can_be_switched_off() -> None:
    scrubbed = Scrubbed(scrub_interval_ms=0)
    scrubbed.flip_log(300)
    for _ in range(5):
        scrubbed.clock.now_ms += DAY_MS
        scrubbed.store.tick()
    assert scrubbed.store.components.scrubber.counts.bytes_verified == 0
    assert scrubbed.store.damaged_ranges() == ()
    scrubbed.store.close()
    with pytest.raises(ValueError, match="scrub_interval_ms"):
        small_config(scrub_interval_ms=-1)
