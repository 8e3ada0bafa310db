"""A whole data folder of the first version: written the same as ever, read by today's code."""

from __future__ import annotations

import json

from imago_log import MessageStore
from imago_log.commitlog.checkpoint import Checkpoint, decode_slot, encode_slot
from imago_log.commitlog.epochs import decode_epochs
from imago_log.metadata.changes import IDENTITY_KIND, UNIQUE_FROM
from imago_log.metadata.state import Metadata
from imago_log.results import ReadStatus
from imago_testing.frames.text import GOLDEN
from imago_testing.stores.in_memory import (
    DATA,
    HOST,
    START_MS,
    FakeClock,
    metaq_bytes,
    open_store,
    small_config,
    split_records,
)
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.records.record import make_entry

FOLDER = GOLDEN / "log" / "folder-version-1.json"
INCARNATIONS = (1, 219, 464)
"""Of that version: where the topics were made in the log."""
PLAIN = {"attributes": {"dialects": "rocketmq"}}
MADE_AHEAD = {"commitlog": 4096, "consumequeue": 1 << 16, "consumequeue_v": 1 << 16}
"""Folders whose files grow in steps of zeros, and the steps."""
WORKING_FILES = {"lock", "abort"}
"""What they hold is no format: a lock, and the machine's boot id while a process runs. Nor do
`*.new` files: room that is kept for the next content."""


def put(store: MessageStore, topic: str, queue_id: int, body: bytes, properties: bytes) -> None:
    tail = store.tail(topic, queue_id)
    entry = make_entry(tail, body, properties, born_ms=START_MS - 9, born_host=HOST)
    store.append([entry])


def write_version_1() -> MemoryVfs:
    """Two log files, two kinds of topic, a deleted one, keys, tags, MetaQ files, two starts."""
    vfs, clock = MemoryVfs(), FakeClock()
    draw = iter(INCARNATIONS).__next__
    store = MessageStore.open(small_config(), clock=clock, vfs=vfs, threaded=False, draw=draw)
    for name, value in (("dual", {"name": "dual"}), ("plain", PLAIN), ("gone", {})):
        store.create_topic(name, value)
    store.set_materialised("dual")
    for at in range(4):
        clock.now_ms += 7
        put(store, "dual", 0, b"body %d" % at, b"KEYS\x01k%d all\x02TAGS\x01red\x02" % at)
        put(store, "dual", 1, b"", b"")
        put(store, "plain", 0, b"x" * 300, b"UNIQ_KEY\x01id%d\x02" % at)
        put(store, "gone", 0, b"gone", b"")
    store.delete_topic("gone")
    store.put_meta([("offset", "g/dual/0", 3), ("group", "g", {"retry": 16})])
    store.put_meta([("offset", "g/dual/0", 4), ("group", "h", None)])
    store.close()
    store = open_store(vfs, clock)
    put(store, "dual", 0, "späte".encode(), b"TAGS\x01blue\x02")
    store.close()
    return vfs


def content(vfs: MemoryVfs) -> dict[str, str]:
    """Return the files as hex by path, without the zeros that were made ahead."""
    found = {}
    for path in vfs.files():
        if path.name not in WORKING_FILES and path.suffix != ".new":
            name = str(path.relative_to(DATA))
            ahead = name.partition("/")[0] in MADE_AHEAD
            found[name] = (vfs.content(path).rstrip(b"\0") if ahead else vfs.content(path)).hex()
    return found


def golden() -> dict[str, str]:
    found: dict[str, str] = json.loads(FOLDER.read_text())
    return found


def golden_folder() -> MemoryVfs:
    vfs = MemoryVfs()
    for name, text in golden().items():
        data = bytes.fromhex(text)
        size = MADE_AHEAD.get(name.partition("/")[0], 0)
        vfs.put(DATA / name, data.ljust(size, b"\0"))
    return vfs


def test_every_kind_of_file_is_there() -> None:
    kinds = {name.partition("/")[0] for name in golden()}
    views = {"consumequeue", "consumequeue_v", "index", "metaq"}
    assert kinds == views | {"commitlog", "config", "checkpoint", "epochFileCheckpoint"}
    assert sum(name.startswith("commitlog/") for name in golden()) == 2


def test_files_are_written_as_ever() -> None:
    written, known = content(write_version_1()), golden()
    assert set(written) == set(known)
    for name in known.keys() - {"checkpoint"}:  # how often that was written is no format
        assert written[name] == known[name], name


def test_checkpoint() -> None:
    data = bytes.fromhex(golden()["checkpoint"])
    slots = [decode_slot(data[at : at + 512]) for at in (0, 512)]
    for at, slot in enumerate(slots):
        assert slot is not None
        assert slot[0] % 2 == at
        assert decode_slot(encode_slot(*slot)) == slot  # version 1 is read, the newest is written
    newest = max(slot for slot in slots if slot is not None)[1]
    end = 5579
    assert newest == Checkpoint(
        log_start=0, log_end=end, durable_end=end, views_synced=end, metadata_end=end,
        keys_end=end, keys_count=12, store_ms=START_MS + 28, metaq_id=931819998530260995, epoch=2,
    )  # fmt: skip


def test_epochs_and_metadata() -> None:
    known = {name: bytes.fromhex(text) for name, text in golden().items()}
    epochs, _ = decode_epochs(known["epochFileCheckpoint"])
    assert [epoch for epoch, _ in epochs] == [1, 2]
    metadata = Metadata.from_snapshot(known["config/metadata.json"])
    assert list(metadata.topics) == ["dual", "plain"]
    assert metadata.topics["dual"].materialised
    assert not metadata.topics["plain"].dual
    assert metadata.values["offset"] == {"g/dual/0": 4}
    assert metadata.values["group"] == {"g": {"retry": 16}}


def test_folder_is_read_and_carried_on() -> None:
    vfs = golden_folder()
    before = content(vfs)
    store = open_store(vfs)
    assert (
        content(vfs)["commitlog/00000000000000000000"] == (before["commitlog/00000000000000000000"])
    )
    holds_all(store)
    put(store, "dual", 0, b"today", b"")
    assert store.queue_range("dual", 0) == (0, 6)
    store.close()


def test_views_of_it_are_rebuilt_the_same() -> None:
    vfs = MemoryVfs()
    for name, text in golden().items():
        if name.startswith("commitlog/"):
            vfs.put(DATA / name, bytes.fromhex(text).ljust(4096, b"\0"))
    store = open_store(vfs)
    holds_all(store)
    store.close()
    rebuilt, known = content(vfs), golden()
    views = [name for name in known if name.startswith(("consumequeue", "index"))]
    assert {name: rebuilt[name] for name in views} == {name: known[name] for name in views}


def holds_all(store: MessageStore) -> None:
    """Everything that `write_version_1` wrote."""
    dual = store.read("dual", 0, 0, messages_max=9, bytes_max=1 << 20)
    records = split_records(dual.body)
    bodies = [*(b"body %d" % at for at in range(4)), "späte".encode()]
    assert [r.body for r in records] == bodies
    assert [r.store_ms - START_MS for r in records] == [7, 14, 21, 28, 28]
    assert [r.properties["TAGS"] for r in records] == ["red"] * 4 + ["blue"]
    assert store.queue_range("dual", 1) == (0, 4)
    assert store.position_range("dual", 1) == (0, 80)
    assert store.queue_range("plain", 0) == (0, 4)
    assert store.position_range("plain", 0) == (0, 0)
    gone = store.read("gone", 0, 0, messages_max=1, bytes_max=1)
    assert gone.status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    assert len(store.find_key("dual", "all", 0, 1 << 60, 9)) == 4
    assert len(store.find_key("plain", "id2", 0, 1 << 60, 9)) == 1
    found = metaq_bytes(store.read_positions("dual", 0, 0, 1 << 20).data)
    assert found[:4] + found[16:33] == b"\0\0\0\x0d\0\0\0\x01\0\0\0\x03redbody 0"
    assert dict(store.meta("offset")) == {"g/dual/0": 4}


def test_topics_of_the_first_version_get_a_number_once() -> None:
    vfs = golden_folder()
    store = open_store(vfs)
    assert store.incarnation("plain") == 219
    assert store.identities.of("plain") is None
    store.identities.complete()
    known = {name: store.identities.of(name) for name in ("dual", "plain")}
    assert len({number for number in known.values() if number and number >= UNIQUE_FROM}) == 2
    end = store.log_end
    store.identities.complete()
    assert store.log_end == end, "once is enough"
    holds_all(store)
    store.close()
    vfs.unlink(DATA / "config" / "metadata.json")  # the log alone tells it
    store = open_store(vfs)
    store.identities.complete()
    assert {name: store.identities.of(name) for name in known} == known
    assert store.incarnation("plain") == 219, "what older clients remember"
    store.delete_topic("plain")
    store.create_topic("plain", PLAIN)
    assert store.identities.of("plain") == store.incarnation("plain")
    assert store.identities.of("plain") not in (None, *known.values())
    assert "plain" not in store.meta(IDENTITY_KIND)
    store.close()


def test_topics_of_two_logs_that_were_made_alike_differ() -> None:
    found = []
    for _ in range(2):
        store = open_store(MemoryVfs())
        for _ in range(2):
            store.create_topic("orders", {})
            found.append(store.incarnation("orders"))
            store.delete_topic("orders")
        store.close()
    assert len(set(found)) == 4
    assert all(number is not None and UNIQUE_FROM <= number < 1 << 63 for number in found)
