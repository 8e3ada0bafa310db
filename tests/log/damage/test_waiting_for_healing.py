"""Readers of a member wait a little for what another one may send, and lose nothing by that."""

from __future__ import annotations

from imago_log import MetaqStatus
from imago_log.commitlog.damage import HEALING_MS
from imago_testing.stores.in_memory import DATA, FakeClock, Model
from imago_testing.stores.members import Member, log_bytes
from imago_testing.stores.vfs import MemoryVfs

FILE = 4096


def test_what_was_just_found_is_waited_for_then_passed_over() -> None:
    clock, model = FakeClock(), Model()
    member = Member.start(MemoryVfs(), clock, scrub_interval_ms=0)
    store = member.store
    store.lead(1)
    store.create_topic("T", {})
    model.send(store, [("T", 0, 40)] * 30)
    store.set_high_watermark(store.log_end)
    victim = model.sent[7]
    whole = log_bytes(store, victim.place, victim.end)
    path = DATA / "commitlog" / f"{victim.place - victim.place % FILE:020d}"
    member.vfs.flip_bit(path, victim.place % FILE + 60)
    store.components.storage.recent.clear()

    def pull() -> tuple[int, int]:
        result = store.read("T", 0, 7, messages_max=3, bytes_max=1 << 20)
        return result.count, result.next_offset

    def get() -> tuple[MetaqStatus, int]:
        read = store.read_positions("T", 0, victim.position, 4000)
        return read.status, read.position

    assert pull() == (0, 7)
    assert get() == (MetaqStatus.AT_END, victim.position)
    assert store.read("T", 0, 5, messages_max=9, bytes_max=1 << 20).next_offset == 7
    clock.now_ms += HEALING_MS
    assert pull() == (3, 11)
    assert get() == (MetaqStatus.LOST, model.sent[8].position)
    assert store.heal(victim.place, whole)
    assert pull() == (3, 10)
    assert get() == (MetaqStatus.FOUND, victim.position)
    store.close()
