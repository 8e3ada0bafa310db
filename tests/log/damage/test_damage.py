"""Only a torn tail is cut. What is damaged is named, and everything else is served."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from imago_log import (
    CorruptLogError,
    DataFolderLockedError,
    LogIOError,
    MessageStore,
    MetaqStatus,
    ReadStatus,
    StoreClosedError,
)
from imago_testing.stores.in_memory import (
    DATA,
    FakeClock,
    Model,
    Sent,
    check_queue,
    open_store,
    split_records,
    whole_messages,
)
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.records.record import StoredMessage, decode_record, metaq_block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = 4096


def path_of(place: int) -> Path:
    return DATA / "commitlog" / f"{place - place % FILE:020d}"


class Found:
    """A folder as a stop left it, and what is in its log."""

    def __init__(self, stop: str, *, synced: int = 0, filed: bool = True) -> None:
        """`synced` of 30 messages are surely on the device when the power is lost.

        `filed`: the units of all are in files when the process is killed.
        """
        vfs, clock, self.model = MemoryVfs(), FakeClock(), Model()
        store = open_store(vfs, clock)
        store.create_topic("T", {})
        store.request_sync()
        for at in range(30):
            self.model.send(store, [("T", 0, 300)])
            if at + 1 == synced:
                store.request_sync()
                store.tick()
        self.end = store.log_end
        self.positions = store.position_range("T", 0)
        if filed and stop != "clean":
            clock.now_ms += 1000
            store.tick()
        self.vfs = vfs
        if stop == "killed":
            self.vfs = vfs.crashed(power_loss=False)
        elif stop == "power lost":
            # All of it happens to be there; what is synced is known from the checkpoint.
            self.vfs = vfs.crashed(power_loss=False)
            self.vfs.boot += 1
        store.close(clean=stop == "clean")

    @property
    def sent(self) -> list[Sent]:
        return self.model.sent

    def flip(self, message: int) -> int:
        """Damage the body of one message; return its place."""
        place = self.sent[message].place
        self.vfs.flip_bit(path_of(place), place % FILE + 100)
        return place

    def zero(self, message: int) -> int:
        """Leave zeros where one message was; return its place."""
        sent = self.sent[message]
        content = bytearray(self.vfs.content(path_of(sent.place)))
        at = sent.place % FILE
        content[at : at + sent.end - sent.place] = bytes(sent.end - sent.place)
        self.vfs.put(path_of(sent.place), bytes(content))
        return sent.place

    def tear(self, message: int, left: int) -> None:
        """Leave the first bytes of a message, as a kill in the middle of its write does."""
        place = self.sent[message].place
        content = bytearray(self.vfs.content(path_of(place)))
        content[place % FILE + left :] = bytes(FILE - place % FILE - left)
        self.vfs.put(path_of(place), bytes(content))

    def harm(self, how: str, message: int) -> None:
        (self.flip if how == "flip" else self.zero)(message)

    def log(self) -> dict[Path, bytes]:
        vfs = self.vfs
        files = [path for path in vfs.files() if path.parent.name == "commitlog"]
        return {path: vfs.content(path) for path in files if any(vfs.content(path))}

    def cut_at(self, message: int) -> None:
        """The log ends there now, and what stood behind never comes back."""
        place = self.sent[message].place
        self.model.cut(place)
        for _ in range(3):
            store = open_store(self.vfs)
            self.model.check(store)
            self.model.send(store, [("T", 0, 120)])
            self.model.check(store)
            store.close(clean=False)


def lost_is_named_and_the_rest_is_served(found: Found, lost: int) -> None:
    """Start twice, and once with all views built again: nothing is cut, one message is lost."""
    before = found.log()
    sent = found.sent[lost]
    for start in range(3):
        if start == 2:
            found.vfs.unlink(DATA / "config" / "views")
        store = open_store(found.vfs)
        (damaged,) = store.damaged_ranges()
        assert (damaged.start, damaged.end) == (sent.place, sent.end)
        assert (damaged.path, damaged.position) == (path_of(sent.place), sent.place % FILE)
        assert store.tick().damaged == (damaged,)
        assert store.position_range("T", 0) == found.positions
        serves_all_but(store, found.sent, [lost])
        store.close(clean=start != 0)
    after = found.log()
    assert {path: after[path] for path in before} == before, "nothing is cut"
    store = open_store(found.vfs)
    found.model.send(store, [("T", 0, 120), ("T", 0, 130)])
    serves_all_but(store, found.sent, [lost])
    store.close()


def serves_all_but(store: MessageStore, sent: list[Sent], lost: list[int]) -> None:
    """Every reader goes around the lost messages and gets all the others, once, in order."""
    assert store.queue_range("T", 0) == (0, len(sent))
    kept = [each for at, each in enumerate(sent) if at not in lost]
    for at_once in (1, 9, 100):
        assert [record.body for record in pulled(store, at_once)] == [each.body for each in kept]
    assert b"".join(got(store)) == b"".join(metaq_forms(store, kept))
    for at in lost:
        assert store.record_at(sent[at].place) is None
    for each in kept:
        assert decode_record(store.record_at(each.place) or b"").body == each.body
        found = store.find_key("T", each.key, 0, 1 << 60, 100)
        assert each.body in [decode_record(record).body for record in found]


def pulled(store: MessageStore, at_once: int) -> list[StoredMessage]:
    records: list[StoredMessage] = []
    offset, end = store.queue_range("T", 0)
    while offset < end:
        result = store.read("T", 0, offset, messages_max=at_once, bytes_max=4000)
        assert result.status in (ReadStatus.FOUND, ReadStatus.MESSAGE_WAS_REMOVING)
        assert offset < result.next_offset <= end
        records += split_records(result.body)
        offset = result.next_offset
    return records


def got(store: MessageStore) -> Iterator[bytes]:
    position, end = store.position_range("T", 0)
    while position < end:
        read = store.read_positions("T", 0, position, 700)
        assert read.status in (MetaqStatus.FOUND, MetaqStatus.LOST)
        data = whole_messages(read.data)
        assert read.position > position or data
        yield data
        position = read.position + len(data)


def metaq_forms(store: MessageStore, sent: list[Sent]) -> list[bytes]:
    return [metaq_block([store.record_at(each.place) or b""]) for each in sent]


@pytest.mark.parametrize("message", [0, 12, 28])
@pytest.mark.parametrize("how", ["flip", "zero"])
def test_middle_of_a_killed_process_log(how: str, message: int) -> None:
    found = Found("killed")
    found.harm(how, message)
    lost_is_named_and_the_rest_is_served(found, message)


@pytest.mark.parametrize("message", [0, 12, 28])
def test_what_nothing_vouches_for_is_lost_up_to_the_end(message: int) -> None:
    """Behind a head that is gone no record is believed that no unit names."""
    found = Found("killed", filed=False)
    found.harm("zero", message)
    store = open_store(found.vfs)
    ranges = store.damaged_ranges()
    file_end = found.sent[message].place // FILE * FILE + FILE
    assert ranges[0].start == found.sent[message].place
    assert ranges[0].end in (file_end, found.end)
    lost = [at for at in range(message, 30) if found.sent[at].place < ranges[-1].end]
    assert store.log_end == found.end
    for at, sent in enumerate(found.sent):
        assert (store.record_at(sent.place) is None) is (at in lost)
    store.close()


def test_below_what_was_synced_before_the_power_went() -> None:
    found = Found("power lost", synced=20)
    found.harm("flip", 15)
    lost_is_named_and_the_rest_is_served(found, 15)


def test_a_head_below_what_was_synced_before_the_power_went() -> None:
    """What was not synced of the units does not count: the log goes on where it was synced."""
    found = Found("power lost", synced=20)
    found.harm("zero", 15)
    store = open_store(found.vfs)
    (damaged,) = store.damaged_ranges()
    file_end = found.sent[15].place // FILE * FILE + FILE
    assert damaged.start == found.sent[15].place
    assert damaged.end == min(found.sent[19].end, file_end)
    lost = [at for at in range(15, 30) if found.sent[at].place < damaged.end]
    serves_all_but(store, found.sent, lost)
    store.close()


@pytest.mark.parametrize("how", ["flip", "zero"])
def test_torn_tail_is_cut_after_power_loss(how: str) -> None:
    found = Found("power lost", synced=20)
    found.harm(how, 29)
    found.cut_at(29)


@pytest.mark.parametrize("left", [1, 20, 36, 60, 200])
def test_torn_tail_is_cut_after_a_kill(left: int) -> None:
    found = Found("killed", filed=False)
    found.tear(29, left)
    found.cut_at(29)


@pytest.mark.parametrize("filed", [True, False])
@pytest.mark.parametrize("how", ["flip", "zero"])
def test_a_kill_loses_nothing_that_was_written(how: str, filed: bool) -> None:
    """What is not there whole, and not the front of a write either, is the device's fault."""
    found = Found("killed", filed=filed)
    found.harm(how, 29)
    if how == "zero" and not filed:
        found.cut_at(29)  # nothing is left that could tell
        return
    lost_is_named_and_the_rest_is_served(found, 29)


@pytest.mark.parametrize("how", ["flip", "zero"])
def test_what_was_never_synced_ends_at_the_first_hole_after_power_loss(how: str) -> None:
    found = Found("power lost", synced=18)
    found.harm(how, 20)
    found.cut_at(20)


def test_damage_at_rest_harms_no_other_message() -> None:
    found = Found("clean")
    found.flip(12)
    before = found.log()
    store = open_store(found.vfs)
    around = found.sent[:12] + found.sent[13:]
    for sent in around:
        result = store.read("T", 0, sent.offset, messages_max=1, bytes_max=1)
        assert sent.body in result.body
    assert store.queue_range("T", 0) == (0, 30)
    store.close()
    assert found.log() == before


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("number", [0, 2, -1])
def test_missing_log_file(number: int, stop: str) -> None:
    found = Found(stop)
    base = list(range(0, found.end, FILE))[number]
    found.vfs.unlink(path_of(base))
    before = found.log()
    lost = [at for at, sent in enumerate(found.sent) if sent.place - sent.place % FILE == base]
    if stop == "killed" and number == -1:
        return  # nobody can know of a tail that was never synced
    for _ in range(2):
        store = open_store(found.vfs)
        assert list(store.topics()) == ["T"], "though its creation may be lost"
        (damaged,) = store.damaged_ranges()
        assert damaged.start == base
        assert damaged.end == min(base + FILE, found.end)
        assert "missing" in damaged.reason
        serves_all_but(store, found.sent, lost)
        store.close()
    unchanged(found, before)


def unchanged(found: Found, before: dict[Path, bytes]) -> None:
    """Nothing of the log is cut or written over, though there may be more of it."""
    after = found.log()
    for path, content in before.items():
        size = found.end - int(path.name)
        assert after[path][:size] == content[:size]


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("size", [0, 1500, FILE - 1])
def test_log_file_cut_short(size: int, stop: str) -> None:
    found = Found(stop)
    path = path_of(FILE)
    found.vfs.put(path, found.vfs.content(path)[:size])
    lost = [at for at, sent in enumerate(found.sent) if FILE + size < sent.end < 2 * FILE]
    before = found.log()
    for _ in range(2):
        store = open_store(found.vfs)
        assert [each.path for each in store.damaged_ranges()] == ([path] if size < FILE - 1 else [])
        serves_all_but(store, found.sent, lost)
        store.close()
    unchanged(found, before)


def test_log_without_any_file() -> None:
    found = Found("clean")
    for path in found.log():
        found.vfs.unlink(path)
    with pytest.raises(CorruptLogError, match="no file of the log is there"):
        open_store(found.vfs)


@pytest.mark.parametrize("slots", [(0,), (1,), (0, 1)])
def test_damaged_checkpoint(slots: tuple[int, ...]) -> None:
    found = Found("clean")
    for slot in slots:
        found.vfs.flip_bit(DATA / "checkpoint", 512 * slot + 40)
    store = open_store(found.vfs)
    found.model.check(store)
    store.close()


def test_damaged_metadata_snapshot() -> None:
    found = Found("clean")
    found.vfs.flip_bit(DATA / "config" / "metadata.json", 60)
    store = open_store(found.vfs)
    assert list(store.topics()) == ["T"]
    found.model.check(store)
    store.close()


def test_after_a_refused_start_the_folder_is_free() -> None:
    found = Found("clean")
    with pytest.raises(CorruptLogError):
        open_store(found.vfs, segment_bytes_max=8192)
    store = open_store(found.vfs)
    found.model.check(store)
    store.close()


def test_one_process_at_a_time() -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    with pytest.raises(DataFolderLockedError):
        open_store(vfs)
    store.close()
    open_store(vfs).close()


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_failed_write_or_sync_is_final(call: str) -> None:
    vfs, clock, model = MemoryVfs(), FakeClock(), Model()
    store = open_store(vfs, clock)
    store.create_topic("T", {})
    model.send(store, [("T", 0, 100)])
    told: list[object] = []
    store.on_failure.add(told.append)

    def fail(what: str, path: Path) -> None:
        if what == call and path.parent.name == "commitlog":
            raise OSError(errno.EIO, "Input/output error")

    vfs.before_call = fail
    if call == "write":
        with pytest.raises(LogIOError, match="Input/output error"):
            model.send(store, [("T", 0, 10)])
        assert len(told) == 1
        with pytest.raises(StoreClosedError):
            model.send(store, [("T", 0, 10)])
        with pytest.raises(StoreClosedError):
            store.tick()
    else:
        with pytest.raises(LogIOError, match="Input/output error"):
            store.request_sync()
        assert store.durable_end < store.log_end
    vfs.before_call = None
    model.in_flight.clear()
    left = vfs.crashed(power_loss=False)
    store.close(clean=False)
    store = open_store(left, clock)
    check_queue(store, "T", 0, model.sent)
    store.close()
