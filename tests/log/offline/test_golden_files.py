"""The store's files have the bytes that version 1 has always had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from imago_log import MessageStore
from imago_log.commitlog.checkpoint import SLOT_SIZE, Checkpoint, decode_slot, encode_slot
from imago_log.commitlog.commit_log import CommitLog
from imago_log.commitlog.damage import Damage
from imago_log.commitlog.epochs import decode_epochs, encode_epochs
from imago_log.disk.space import Space
from imago_log.disk.worker import Background, InlineWorker
from imago_log.metadata.state import Metadata
from imago_log.signals import Signal
from imago_log.views.units.consume_queue import POSITION_SIZE, UNIT_SIZE
from imago_testing.stores.in_memory import DATA, FakeClock, small_config
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.records.record import make_entry

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "log" / "version-1.json").read_text())
HOST = bytes([10, 0, 0, 5, 0, 0, 0x2A, 0x9F])
CHECKPOINT = Checkpoint(
    log_start=4096, log_end=9000, durable_end=8000, views_synced=7000, metadata_end=7500,
    keys_end=7200, keys_count=33, store_ms=1_700_000_000_123, metaq_id=77, epoch=8,
    high_watermark=8900,
)  # fmt: skip


def small_store() -> MemoryVfs:
    """A store with three messages in one queue, closed in order."""
    vfs = MemoryVfs()
    config, clock = small_config(store_host=HOST), FakeClock(1_800_000_000_000)
    store = MessageStore.open(config, clock=clock, vfs=vfs, threaded=False, draw=lambda: 1)
    value = {"name": "T", "attributes": {"materialised": "true"}}
    store.create_topic("T", value)
    tail = store.tail("T", 0)
    for body in (b"hello", b"", b"x" * 20):
        properties = b"KEYS\x01order-1\x02TAGS\x01TagA\x02"
        store.append([make_entry(tail, body, properties, born_ms=1, born_host=HOST)])
    store.close()
    return vfs


def test_epoch_file_is_rocketmqs() -> None:
    data = b"2\n938008734\n7-0\n8-7000\n"
    assert encode_epochs(((7, 0), (8, 7000))) == data
    assert decode_epochs(data) == (((7, 0), (8, 7000)), 8)


def test_epoch_file_with_a_promise() -> None:
    data = b"2\n1531344804\n7-0\n8-7000\npromised 11\n"
    assert encode_epochs(((7, 0), (8, 7000)), 11) == data
    assert decode_epochs(data) == (((7, 0), (8, 7000)), 11)
    assert encode_epochs(((7, 0), (8, 7000)), 8) == b"2\n938008734\n7-0\n8-7000\n"
    assert decode_epochs(encode_epochs((), 3)) == ((), 3)


def test_checkpoint_slot() -> None:
    slot = encode_slot(5, CHECKPOINT)
    assert len(slot) == SLOT_SIZE
    assert slot.rstrip(b"\0").hex() == GOLDEN["checkpoint 2"]
    assert decode_slot(slot) == (5, CHECKPOINT)


def test_a_checkpoint_slot_of_version_1_is_read() -> None:
    slot = bytes.fromhex(GOLDEN["checkpoint"]).ljust(SLOT_SIZE, b"\0")
    assert decode_slot(slot) == (5, replace(CHECKPOINT, high_watermark=0))


def test_a_checkpoint_slot_with_any_flipped_bit_does_not_count() -> None:
    slot = bytearray(encode_slot(5, CHECKPOINT))
    for bit in range(8 * 108):
        slot[bit // 8] ^= 1 << bit % 8
        assert decode_slot(bytes(slot)) is None
        slot[bit // 8] ^= 1 << bit % 8


def damage_of(vfs: MemoryVfs, log: CommitLog) -> Damage:
    return Damage(
        vfs=vfs,
        path=DATA / "config" / "damage",
        log=log,
        clock=lambda: 0,
        background=Background(Space(vfs, DATA / "probe"), InlineWorker),
        on_found=Signal(),
        others=False,
    )


def test_damage_note() -> None:
    vfs = MemoryVfs()
    log = CommitLog(vfs, DATA / "commitlog", 4096)
    vfs.make_folder(DATA / "config")
    damage = damage_of(vfs, log)
    damage.add(4000, 4500, "magic 00000000", 1_700_000_000_123)
    damage.save()
    assert vfs.content(DATA / "config" / "damage").decode() == GOLDEN["config/damage"]
    found = [(each.start, each.end, each.since_ms, each.reason) for each in damage.ranges]
    assert damage_of(vfs, log).load() == found
    assert [each.position for each in damage.ranges] == [4000, 0]


def test_a_damage_note_with_any_flipped_bit_says_nothing() -> None:
    vfs, path = MemoryVfs(), DATA / "config" / "damage"
    data = bytearray(GOLDEN["config/damage"].encode())
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        vfs.put(path, bytes(data))
        told = damage_of(vfs, CommitLog(vfs, DATA / "commitlog", 4096)).load()
        assert told is None or bit // 8 == len(data) - 1
        data[bit // 8] ^= 1 << bit % 8


def test_files_of_a_small_store() -> None:
    vfs = small_store()
    sizes = {
        "commitlog/00000000000000000000": None,
        "consumequeue/T/0/00000000000000000000": 3 * UNIT_SIZE,
        "consumequeue_v/T/0/00000000000000000000": 3 * POSITION_SIZE,
        "index/00000000000000000000": None,
        "metaq/T-0/00000000000000000000.meta": None,
    }
    for name, size in sizes.items():
        content = vfs.content(DATA / name)
        assert content[:size].rstrip(b"\0").hex() == GOLDEN[name], name


def test_metadata_snapshot() -> None:
    data = GOLDEN["config/metadata.json"].encode()
    assert small_store().content(DATA / "config" / "metadata.json") == data
    metadata = Metadata.from_snapshot(data)
    assert metadata.topics["T"].dual
    assert metadata.snapshot() == data
