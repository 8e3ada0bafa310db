"""Look-up by key: found where they are, in time order, whatever became of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_log.disk.files import FilePool
from imago_log.views.key_index import WAITING_BYTES_MAX, KeyIndex
from imago_testing.stores.in_memory import DATA, HOST, START_MS, FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.hot import key_entries
from imago_wire.records.record import decode_record, key_hash, make_entry

if TYPE_CHECKING:
    from imago_log import MessageStore

FOREVER = 1 << 60


def put(store: MessageStore, body: bytes, properties: str, topic: str = "T") -> int:
    """Append one message; properties as `NAME=value` with semicolons."""
    pairs = [text.partition("=") for text in properties.split(";")]
    data = "".join(f"{name}\x01{value}\x02" for name, _, value in pairs).encode()
    tail = store.tail(topic, 0)
    entry = make_entry(tail, body, data, born_ms=START_MS, born_host=HOST)
    return store.append([entry])[0][1]


def find(
    store: MessageStore,
    key: str,
    begin_ms: int = 0,
    end_ms: int = FOREVER,
    *,
    topic: str = "T",
    count_max: int = 64,
) -> list[bytes]:
    found = store.find_key(topic, key, begin_ms, end_ms, count_max)
    return [decode_record(record).body for record in found]


def begun(vfs: MemoryVfs, clock: FakeClock, **changes: int) -> MessageStore:
    store = open_store(vfs, clock, **changes)
    store.create_topic("T", {})
    store.create_topic("U", {})
    return store


def test_by_every_key_and_the_unique_one() -> None:
    store = begun(MemoryVfs(), FakeClock())
    put(store, b"1", "KEYS=a b  c;UNIQ_KEY=id-1;TAGS=x")
    put(store, b"2", "KEYS=b;UNIQ_KEY=id-2")
    put(store, b"3", "KEYS=b;UNIQ_KEY=id-3", topic="U")
    put(store, b"4", "TAGS=b")
    assert find(store, "a") == find(store, "c") == find(store, "id-1") == [b"1"]
    assert find(store, "b") == [b"1", b"2"]
    assert find(store, "b", topic="U") == [b"3"]
    for other in ("a b", "x", "id", "id-3", ""):
        assert find(store, other) == []
    assert find(store, "a", topic="none") == []
    store.close()


def test_a_key_that_stands_twice_in_a_message_finds_it_once() -> None:
    store = begun(MemoryVfs(), FakeClock())
    put(store, b"1", "KEYS=a a;UNIQ_KEY=a")
    assert find(store, "a") == [b"1"]
    store.close()


@pytest.mark.shipped_limits  # a message is larger than the small one
def test_entries_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends waits for those that are made with the append: never for hundreds."""
    made: list[int] = []

    def counted(records: bytes, log_offset: int) -> bytes:
        made.append(len(records))
        return key_entries(records, log_offset)

    monkeypatch.setattr("imago_log.views.key_index.key_entries", counted)
    clock = FakeClock()
    store = begun(MemoryVfs(), clock)
    sizes = []
    for at in range(400):
        clock.now_ms += 20 * (at == 399)  # the views are written behind with this one
        made.clear()
        put(store, bytes(1024), f"UNIQ_KEY=id-{at}")
        sizes.append(sum(made))
    assert sum(sizes) > 399 * 1024
    assert max(sizes) < 2 * WAITING_BYTES_MAX
    assert find(store, "id-0") == find(store, "id-399") == [bytes(1024)]
    store.close()


def test_time_window_holds_both_ends() -> None:
    clock = FakeClock()
    store = begun(MemoryVfs(), clock)
    times = []
    for at in range(5):
        put(store, b"%d" % at, "KEYS=k")
        times.append(clock.now_ms)
        clock.now_ms += 10
    assert find(store, "k", times[1], times[3]) == [b"1", b"2", b"3"]
    assert find(store, "k", times[1] + 1, times[3] - 1) == [b"2"]
    assert find(store, "k", times[4] + 1) == []
    assert find(store, "k", 0, times[0] - 1) == []
    assert find(store, "k", times[3], times[1]) == []
    store.close()


def test_of_too_many_the_newest() -> None:
    store = begun(MemoryVfs(), FakeClock())
    for at in range(9):
        put(store, b"%d" % at, "KEYS=k")
    assert find(store, "k", count_max=3) == [b"6", b"7", b"8"]
    store.close()


def test_keys_with_one_hash_are_told_apart() -> None:
    """Aa and BB have the same Java string hash."""
    store = begun(MemoryVfs(), FakeClock())
    put(store, b"1", "KEYS=Aa")
    put(store, b"2", "KEYS=BB")
    assert find(store, "Aa") == [b"1"]
    assert find(store, "BB") == [b"2"]
    store.close()


def test_only_below_the_watermark() -> None:
    store = begun(MemoryVfs(), FakeClock())
    put(store, b"1", "KEYS=k")
    end = put(store, b"2", "KEYS=k")
    store.set_high_watermark(end)
    assert find(store, "k") == [b"1"]
    store.close()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("lost", ["", "index", "index/00000000000000000000"])
def test_after_a_restart(lost: str, *, clean: bool) -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store = begun(vfs, clock)
    for at in range(40):
        put(store, b"%d" % at, f"KEYS=k{at % 4};UNIQ_KEY=u{at}")
        clock.now_ms += 700
        store.tick()
    left = vfs if clean else vfs.crashed(power_loss=False)
    store.close(clean=clean)
    if lost and left.is_folder(DATA / lost):
        left.remove_folder(DATA / lost)
    elif lost:
        left.unlink(DATA / lost)
    store = open_store(left, clock)
    put(store, b"new", "KEYS=k1")
    assert find(store, "k1") == [b"%d" % at for at in range(1, 40, 4)] + [b"new"]
    assert [find(store, f"u{at}") for at in range(40)] == [[b"%d" % at] for at in range(40)]
    store.close()


def test_after_retention() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store, model = begun(vfs, clock, retention_bytes=3 * 4096), Model()
    for _ in range(60):
        model.send(store, [("T", 0, 300)])
    for _ in range(4):
        clock.now_ms += 4000
        store.tick()
    assert store.log_start > 0
    for key in {sent.key for sent in model.sent}:
        kept = [s.body for s in model.sent if s.key == key and s.place >= store.log_start]
        assert find(store, key) == kept != []
    store.close()


def index(vfs: MemoryVfs) -> KeyIndex:
    vfs.make_folder(DATA)
    return KeyIndex(FilePool(vfs, 8), DATA, entries_per_file=16)


def records(count: int) -> list[tuple[int, bytes]]:
    """Return whole records with one key each and their places."""
    vfs = MemoryVfs()
    store = open_store(vfs, segment_bytes_max=1 << 20)
    store.create_topic("T", {})
    places = [put(store, b"%d" % at, f"KEYS=k{at % 5}") for at in range(count)]
    found = [(place, store.record_at(place) or b"") for place in places]
    store.close()
    return found


def test_files_of_the_index_follow_one_another_and_are_cut() -> None:
    vfs = MemoryVfs()
    keys = index(vfs)
    made = records(50)
    for place, record in made:
        keys.add(place, record)
        keys.write_all()
    names = [0, 16 * 12, 32 * 12, 48 * 12]
    assert [int(p.name) for p in vfs.files()] == names
    keys.drop_before(made[20][0])
    assert [int(p.name) for p in vfs.files()] == names[1:]
    keys.truncate(made[40][0])
    assert keys.written_count == 40
    again = index(vfs)
    again.load(40, made[40][0])
    for place, record in made[40:]:
        again.add(place, record)
    found = list(again.candidates(key_hash(b"T", b"k0"), 0, 1 << 60))
    assert found == [made[at][0] for at in (45, 40, 35, 30, 25, 20)]
    again.load(32, made[32][0])
    assert (again.written_count, len(vfs.files())) == (32, 1)


def test_an_index_that_holds_too_little_is_not_believed() -> None:
    vfs = MemoryVfs()
    keys = index(vfs)
    for place, record in records(20):
        keys.add(place, record)
    keys.write_all()
    with pytest.raises(ValueError, match="less than 21"):
        index(vfs).load(21, 1 << 40)


def test_the_newest_that_fit_are_found() -> None:
    store = begun(MemoryVfs(), FakeClock())
    for body in (b"1", b"2", b"3"):
        put(store, body, "KEYS=a")
    put(store, b"x" * 3000, "KEYS=a", topic="U")
    size = len(store.find_key("T", "a", 0, FOREVER, 1)[0])

    def fitting(bytes_max: int, topic: str = "T") -> list[bytes]:
        found = store.find_key(topic, "a", 0, FOREVER, 64, bytes_max=bytes_max)
        return [decode_record(record).body for record in found]

    assert fitting(3 * size) == [b"1", b"2", b"3"]
    assert fitting(3 * size - 1) == fitting(2 * size) == [b"2", b"3"]
    assert fitting(2 * size - 1) == fitting(0) == [b"3"]
    assert fitting(0, "U") == [b"x" * 3000], "one, however large"
