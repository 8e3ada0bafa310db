"""MetaQ's own files: what the original would have written, byte for byte."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from imago_log import FileSlice, MessageStore, MetaqStatus
from imago_log.views.metaq.materialiser import BESIDE_READERS_SHARE, WORKER_SHARE, Materialiser
from imago_testing.stores.in_memory import (
    DATA,
    HOST,
    START_MS,
    FakeClock,
    Model,
    metaq_bytes,
    open_store,
    whole_messages,
)
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.crc import crc31
from imago_wire.records.record import decode_record, make_entry

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE_MAX = 700


class Metaq:
    """A materialised topic, and what MetaQ itself would hold for what is sent."""

    def __init__(self) -> None:
        self.vfs, self.clock = MemoryVfs(), FakeClock()
        self.store = open_store(self.vfs, self.clock)
        self.store.create_topic("T", {})
        self.store.set_materialised("T")
        self.messages: list[tuple[int, bytes]] = []
        """Flag and body as a MetaQ producer sends them."""

    def put(self, payload: bytes, attribute: bytes | None = None) -> None:
        """Append a message as the MetaQ server does: the attribute becomes TAGS."""
        flag, body, properties = 0, payload, b""
        if attribute is not None:
            flag, body = 1, struct.pack(">i", len(attribute)) + attribute + payload
            properties = b"TAGS\x01" + attribute + b"\x02"
        tail = self.store.tail("T", 0)
        entry = make_entry(tail, payload, properties, flag=flag, born_ms=START_MS, born_host=HOST)
        self.store.append([entry])
        self.messages.append((flag, body))

    def expected(self) -> bytes:
        """Return all messages in MetaQ's stored form: i32 length, checksum, i64 id, flag, body."""
        forms = []
        for offset, (flag, body) in enumerate(self.messages):
            record = self.store.read("T", 0, offset, messages_max=1, bytes_max=1).body
            metaq_id = int(decode_record(record).properties["__METAQ_ID"], 16)
            forms.append(struct.pack(">iiqi", len(body), crc31(body), metaq_id, flag) + body)
        return b"".join(forms)

    def files(self) -> dict[int, bytes]:
        folder = DATA / "metaq" / "T-0"
        paths = [p for p in self.vfs.files() if p.parent == folder and p.name != "origin"]
        assert all(len(p.name) == 25 and p.suffix == ".meta" for p in paths)
        return {int(p.stem): self.vfs.content(p) for p in paths}

    def whole(self) -> bytes:
        """Return the files joined, after a look at their borders."""
        files = self.files()
        position = min(files)
        for start, content in sorted(files.items()):
            assert start == position
            position += len(content)
        closed = sorted(files)[:-1]
        last = {start: self.last_size(files[start]) for start in closed}
        for start in closed:
            size = len(files[start])
            assert size - last[start] < SIZE_MAX <= size, "closed by the message that filled it"
        return b"".join(files[start] for start in sorted(files))

    @staticmethod
    def last_size(content: bytes) -> int:
        at = size = 0
        while at < len(content):
            size = 20 + int.from_bytes(content[at : at + 4], "big")
            at += size
        assert at == len(content), "no message spans two files"
        return size

    def reopen(self, *, clean: bool) -> None:
        left = self.vfs if clean else self.vfs.crashed(power_loss=False)
        self.store.close(clean=clean)
        self.vfs = left
        self.store = open_store(left, self.clock)

    def fill(self, count: int) -> None:
        for at in range(count):
            attribute = (None, b"", b"news", "Grüße".encode())[at % 4]
            self.put(bytes([65 + at % 26]) * (at * 37 % 400), attribute)
            if at % 5 == 0:
                self.clock.now_ms += 300
                self.store.tick()

    def read_all(self, position: int) -> bytes:
        found = bytearray()
        while True:
            read = self.store.read_positions("T", 0, position + len(found), 1000)
            if read.status is not MetaqStatus.FOUND:
                assert read.status is MetaqStatus.AT_END
                return bytes(found)
            found += whole_messages(read.data)


def test_files_are_those_of_metaq() -> None:
    metaq = Metaq()
    metaq.fill(40)
    metaq.store.tick()
    assert metaq.whole() == metaq.expected()
    assert min(metaq.files()) == 0
    assert len(metaq.files()) > 8
    metaq.store.close()


@pytest.mark.shipped_limits
def test_one_backlog_makes_the_same_files_as_many_rounds() -> None:
    slowly, at_once = Metaq(), Metaq()
    for at in range(30):
        for metaq in (slowly, at_once):
            metaq.put(b"x" * (at * 31 % 300))
        slowly.store.tick()
    at_once.store.close()
    slowly.store.close()
    assert slowly.files() == at_once.files()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_restart_goes_on_where_the_files_end(clean: bool) -> None:
    metaq = Metaq()
    for _ in range(3):
        metaq.fill(11)
        metaq.reopen(clean=clean)
    metaq.store.tick()
    assert metaq.whole() == metaq.expected() == metaq.read_all(0)
    metaq.store.close()


def test_a_torn_end_is_cut_and_written_again() -> None:
    metaq = Metaq()
    metaq.fill(20)
    metaq.put(b"the end")
    metaq.store.tick()
    vfs = metaq.vfs.crashed(power_loss=False)
    metaq.store.close(clean=False)
    metaq.vfs = vfs
    start = max(metaq.files())
    path = DATA / "metaq" / "T-0" / f"{start:020d}.meta"
    content = metaq.files()[start]
    assert content.endswith(b"the end")
    vfs.put(path, content[:-7] + b"\0" * 30)
    metaq.store = open_store(vfs, metaq.clock)
    metaq.store.tick()
    assert metaq.whole() == metaq.expected()
    metaq.store.close()


def test_lost_files_are_made_anew_from_the_log() -> None:
    metaq = Metaq()
    metaq.fill(20)
    metaq.store.close()
    metaq.vfs.remove_folder(DATA / "metaq")
    metaq.store = open_store(metaq.vfs, metaq.clock)
    assert metaq.read_all(0) == metaq.expected()
    metaq.fill(20)
    metaq.store.tick()
    assert metaq.whole() == metaq.expected() == metaq.read_all(0)
    metaq.store.close()


def test_a_long_backlog_gets_files_for_its_newest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imago_log.views.metaq.materialiser.BACKLOG_BYTES_MAX", 2000)
    metaq = Metaq()
    metaq.fill(60)
    metaq.store.close()
    metaq.vfs.remove_folder(DATA / "metaq")
    metaq.store = open_store(metaq.vfs, metaq.clock)
    end = metaq.store.position_range("T", 0)[1]
    metaq.store.tick()
    begin = min(metaq.files())
    assert end - 2000 <= begin < end - 1500
    expected = metaq.expected()
    assert metaq.whole() == expected[begin:]
    assert metaq.read_all(0) == expected
    metaq.store.close()


def test_a_hole_between_files_is_not_read_over() -> None:
    metaq = Metaq()
    metaq.fill(30)
    metaq.store.close()
    middle = sorted(metaq.files())[3]
    metaq.vfs.unlink(DATA / "metaq" / "T-0" / f"{middle:020d}.meta")
    metaq.store = open_store(metaq.vfs, metaq.clock)
    assert metaq.read_all(0) == metaq.expected()
    metaq.store.tick()
    assert metaq.read_all(0) == metaq.expected() == metaq.whole()
    metaq.store.close()


def test_files_of_an_earlier_topic_of_the_name_go() -> None:
    metaq = Metaq()
    metaq.fill(20)
    metaq.store.tick()
    metaq.store.delete_topic("T")
    assert metaq.files() == {}
    metaq.messages.clear()
    metaq.store.create_topic("T", {})
    metaq.store.set_materialised("T")
    metaq.fill(12)
    metaq.store.tick()
    assert metaq.whole() == metaq.expected()
    assert min(metaq.files()) == 0
    metaq.store.close()


def test_a_topic_is_materialised_with_its_backlog() -> None:
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", {})
    for _ in range(5):
        model.send(store, [("T", 0, 60)])
    store.set_materialised("T")
    for _ in range(5):
        model.send(store, [("T", 0, 60), ("T", 1, 60)])
    store.tick()
    names = [(p.parent.name, int(p.stem)) for p in vfs.files() if p.suffix == ".meta"]
    assert names == [("T-0", 0), ("T-0", 774), ("T-1", 0)]
    model.check(store)
    store.close()


@pytest.mark.shipped_limits
def test_a_large_read_is_a_slice_of_one_file() -> None:
    vfs = MemoryVfs()
    store = open_store(
        vfs, segment_bytes_max=1 << 20, metaq_segment_bytes_max=1 << 20, message_bytes_max=1 << 18
    )
    store.create_topic("T", {})
    store.set_materialised("T")
    Model().send(store, [("T", 0, 30_000)] * 8)
    store.tick()
    large = store.read_positions("T", 0, 0, 100_000).data
    assert isinstance(large, FileSlice)
    assert (large.offset, large.size) == (0, 100_000)
    assert large.read() == large_from_log(store, large.size)
    assert isinstance(store.read_positions("T", 0, 0, 40_000).data, bytes)
    store.close()


def large_from_log(store: MessageStore, size: int) -> bytes:
    """Return the same bytes without the files: each message out of its record."""
    found = bytearray()
    while len(found) < size:
        read = store.read_positions("T", 0, len(found), 40_000)
        found += whole_messages(read.data)
    return bytes(found[:size])


@pytest.mark.shipped_limits
def test_reads_say_when_they_are_behind() -> None:
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", {})
    for _ in range(5):
        model.send(store, [("T", 0, 60)])
    assert not store.read_positions("T", 0, 0, 100).behind, "it is in memory"
    store.close()
    store = open_store(vfs)
    first = store.read_positions("T", 0, 0, 100)
    assert first.behind
    store.set_materialised("T")
    store.tick()
    again = store.read_positions("T", 0, 0, 100)
    assert not again.behind
    assert metaq_bytes(first.data) == metaq_bytes(again.data)
    store.close()


class HeldWorker:
    """Stands for the worker's thread: jobs run when the test says so."""

    def __init__(self, store: MessageStore) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.shares: list[float] = []
        materialiser: Any = store.components.storage.materialiser
        materialiser._background = self

    def submit_waiting(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def leave_to_others(self, share: float) -> None:
        """Nobody waits."""
        self.shares.append(share)

    def drain(self) -> None:
        self.run()

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


@pytest.mark.shipped_limits
def test_readers_are_served_while_the_files_are_written() -> None:
    metaq = Metaq()
    worker = HeldWorker(metaq.store)
    metaq.fill(20)
    metaq.store.tick()
    assert len(worker.jobs) == 1, "the next job waits for this one"
    assert metaq.read_all(0) == metaq.expected()
    worker.run()
    assert metaq.read_all(0) == metaq.expected()
    metaq.fill(20)
    worker.run()
    metaq.store.tick()
    worker.run()
    metaq.store.tick()
    assert metaq.whole() == metaq.expected() == metaq.read_all(0)
    metaq.store.close()


@pytest.mark.shipped_limits
def test_writing_leaves_more_to_those_who_read_a_backlog() -> None:
    metaq = Metaq()
    worker = HeldWorker(metaq.store)
    materialiser = metaq.store.components.storage.materialiser
    for beside_readers in (False, True):
        metaq.fill(20)  # writes, too
        worker.run()
        materialiser.advance(beside_readers=beside_readers)
        worker.run()
        assert (BESIDE_READERS_SHARE in worker.shares) == beside_readers
    assert BESIDE_READERS_SHARE < WORKER_SHARE
    metaq.store.close()


@pytest.mark.shipped_limits
def test_a_reader_of_a_backlog_says_so_to_whoever_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", {})
    model.send(store, [("T", 0, 60)] * 5)
    store.close()
    store = open_store(vfs)
    HeldWorker(store)
    store.set_materialised("T")
    asked: list[bool] = []

    def advance(_: Materialiser, bytes_min: int = 1, *, beside_readers: bool = False) -> None:
        assert bytes_min == 1
        asked.append(beside_readers)

    monkeypatch.setattr(Materialiser, "advance", advance)
    assert store.read_positions("T", 0, 0, 100).behind
    assert asked == [True]
    store.close()


def test_a_topic_deleted_while_its_files_are_written_leaves_none() -> None:
    metaq = Metaq()
    worker = HeldWorker(metaq.store)
    metaq.fill(20)
    metaq.store.tick()
    assert worker.jobs
    metaq.store.delete_topic("T")
    worker.run()
    assert metaq.files() == {}
    metaq.store.close()


@pytest.mark.shipped_limits
def test_records_that_cannot_be_read_are_passed_over() -> None:
    metaq = Metaq()
    worker = HeldWorker(metaq.store)
    metaq.fill(20)
    end = metaq.store.position_range("T", 0)[1]
    files = metaq.store.components.storage.log._files._by_number
    good = files.copy()
    files.clear()
    metaq.store.tick()
    worker.run()
    files.update(good)
    metaq.store.tick()
    metaq.fill(20)
    for _ in range(3):
        metaq.store.tick()
        worker.run()
    metaq.store.tick()
    assert min(metaq.files()) == end
    assert metaq.whole() == metaq.expected()[end:]
    metaq.store.close()
