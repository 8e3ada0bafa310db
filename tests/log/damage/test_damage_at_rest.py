"""Bits that flip in files of a running store: noticed by whoever reads, never handed out."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from imago_log import DamagedRange, MetaqStatus, ReadStatus
from imago_testing.stores.in_memory import DATA, Model, metaq_bytes, open_store, split_records
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.records.record import decode_record, metaq_block

if TYPE_CHECKING:
    from pathlib import Path

FILE = 4096


class Running:
    """A store whose messages are read from its files, not from memory."""

    def __init__(self, count: int = 30) -> None:
        self.vfs, self.model = MemoryVfs(), Model()
        self.store = open_store(self.vfs)
        self.store.create_topic("T", {})
        for at in range(count):
            self.model.send(self.store, [("T", 0, 60 + at), ("T", 1, 40)])
        self.store.close()
        self.store = open_store(self.vfs)
        self.sent = [sent for sent in self.model.sent if sent.queue_id == 0]
        records = {sent.offset: self.store.record_at(sent.place) or b"" for sent in self.sent}
        self.forms = {offset: metaq_block([record]) for offset, record in records.items()}

    def path_of(self, place: int) -> Path:
        return DATA / "commitlog" / f"{place - place % FILE:020d}"

    def flip(self, place: int, bit: int = 0) -> None:
        self.vfs.flip_bit(self.path_of(place), place % FILE, bit)

    def forget_damage(self) -> None:
        for found in self.store.damaged_ranges():
            self.store.components.storage.damage.shrink(found, found.end)
        self.store.components.storage.damage.save()

    def pull(self, offset: int, count: int) -> list[bytes]:
        """Bodies from a queue offset on, as one pull gives them."""
        result = self.store.read("T", 0, offset, messages_max=count, bytes_max=1 << 20)
        assert result.status in (ReadStatus.FOUND, ReadStatus.MESSAGE_WAS_REMOVING)
        assert result.next_offset > offset
        return [record.body for record in split_records(result.body)]

    def pull_all(self, at_once: int, start: int = 0, end: int | None = None) -> list[bytes]:
        bodies: list[bytes] = []
        offset, end = start, len(self.sent) if end is None else end
        while offset < end:
            count = min(at_once, end - offset)
            result = self.store.read("T", 0, offset, messages_max=count, bytes_max=1 << 20)
            bodies += [record.body for record in split_records(result.body)]
            offset = result.next_offset
        return bodies

    def get(self, position: int, bytes_max: int) -> tuple[MetaqStatus, int, bytes]:
        read = self.store.read_positions("T", 0, position, bytes_max)
        return read.status, read.position, metaq_bytes(read.data)


def test_every_flipped_bit_of_a_record_is_noticed_by_every_way_to_read_it() -> None:
    running = Running()
    store, sent = running.store, running.sent
    victim = sent[7]
    others = [each.body for each in sent[5:10] if each is not victim]
    following = sent[8].position
    for at in range(victim.place, victim.end):
        for bit in range(8):
            running.flip(at, bit)
            way = (at + bit) % 4
            if way == 0:
                assert running.pull(5, 4) == others
            elif way == 1:
                assert running.get(victim.position, 5000) == (MetaqStatus.LOST, following, b"")
            elif way == 2:
                assert store.record_at(victim.place) is None
            else:
                keyed = store.find_key("T", victim.key, 0, 1 << 60, 100)
                assert victim.body not in [decode_record(record).body for record in keyed]
                assert running.pull(7, 1) == [sent[8].body]
            (damaged,) = store.damaged_ranges()
            assert (damaged.start, damaged.end) == (victim.place, victim.end)
            running.forget_damage()
            running.flip(at, bit)
    assert running.pull(5, 5) == [each.body for each in sent[5:10]]
    store.close()


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_v"])
def test_every_flipped_bit_of_a_unit_that_leads_astray_is_put_right(folder: str) -> None:
    running = Running()
    store, sent = running.store, running.sent
    assert running.pull(0, 1) == [sent[0].body]
    path = DATA / folder / "T" / "0" / f"{0:020d}"
    whole = running.vfs.content(path)
    unit, checked = (20, 12) if folder == "consumequeue" else (12, 12)  # a tag leads nobody astray
    for at in range(6 * unit, 6 * unit + checked):
        for bit in range(8):
            running.vfs.flip_bit(path, at, bit)
            queue = store.components.storage.queues.find("T", 0)
            assert queue is not None
            queue.lookup._read_ends.clear()
            if unit == 20:
                # A wrong size may end a read before its message; the next read begins there.
                assert running.pull_all(5, start=5, end=9) == [each.body for each in sent[5:9]]
                assert running.vfs.content(path) == whole
            else:
                expected = b"".join(running.forms[offset] for offset in range(4, 9))
                found = b""
                while len(found) < len(expected):
                    position = sent[4].position + len(found)
                    status, begin, data = running.get(position, len(expected) - len(found))
                    assert (status, begin) == (MetaqStatus.FOUND, position)
                    found += data
                assert found == expected
            assert store.damaged_ranges() == ()
            running.vfs.names_now[path].content[:] = whole
    store.close()


@pytest.mark.parametrize("file", [0, 1])
def test_first_and_last_record_of_a_file_and_the_blank_one_behind(file: int) -> None:
    running = Running()
    store = running.store
    records = [sent for sent in running.model.sent if sent.place // FILE == file]
    victims = [records[0], records[-1]]
    told: list[DamagedRange] = []
    store.on_damage.add(told.append)
    for victim in victims:
        running.flip(victim.place + 40)
        assert store.record_at(victim.place) is None
    assert [each.start for each in told] == [victim.place for victim in victims]
    running.flip(records[-1].end + 5)
    store.close()
    running.store = store = open_store(running.vfs)
    found = [(each.start, each.end) for each in store.damaged_ranges()]
    assert found == [(victim.place, victim.end) for victim in victims]
    places = [victim.place for victim in victims]
    kept = [sent.body for sent in running.sent if sent.place not in places]
    assert running.pull_all(1) == running.pull_all(7) == kept
    store.close()


def test_a_page_of_zeros_takes_the_records_that_it_touches() -> None:
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs, segment_bytes_max=32768)
    store.create_topic("T", {})
    for _ in range(40):
        model.send(store, [("T", 0, 300)])
    store.close()
    path = DATA / "commitlog" / f"{0:020d}"
    content = bytearray(vfs.content(path))
    content[8192:12288] = bytes(4096)
    vfs.put(path, bytes(content))
    store = open_store(vfs, segment_bytes_max=32768)
    result = store.read("T", 0, 0, messages_max=100, bytes_max=1 << 20)
    kept = [sent for sent in model.sent if sent.end <= 8192 or sent.place >= 12288]
    assert [record.body for record in split_records(result.body)] == [sent.body for sent in kept]
    (damaged,) = store.damaged_ranges()
    lost = [sent for sent in model.sent if sent not in kept]
    assert (damaged.start, damaged.end) == (lost[0].place, lost[-1].end)
    assert store.components.storage.damage.skipped == len(lost)
    store.close()


def test_what_the_device_cannot_read_is_damage() -> None:
    running = Running()
    store, bad = running.store, running.sent[9].place
    read = running.vfs.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        path = running.vfs._open[fd][0]
        if path == running.path_of(bad) and offset <= bad % FILE < offset + size:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, size, offset)

    running.vfs.pread = pread  # type: ignore[method-assign]  # a device that fails
    # The page is the whole file here: what is not on it is served.
    other = [sent.body for sent in running.sent if sent.place // FILE != bad // FILE]
    found = running.pull_all(5)
    assert set(other) <= set(found)
    assert running.sent[9].body not in found
    assert {each.path for each in store.damaged_ranges()} == {running.path_of(bad)}
    running.vfs.pread = read  # type: ignore[method-assign]
    store.close()


def test_times_are_found_around_damage() -> None:
    running = Running()
    store, sent = running.store, running.sent
    for victim in sent[10:20]:
        running.flip(victim.place + 57)  # in its store time
    assert store.offset_by_time("T", 0, 0) == 0
    assert store.offset_by_time("T", 0, 1 << 60) == len(sent)
    assert store.store_time("T", 0, 12) is None
    assert store.store_time("T", 0, 20) is not None
    store.close()
