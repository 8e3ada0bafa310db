"""A member whose log is a real store, on a file system in memory that can lose power.

The model's lists go along with it, so that everything else looks at both kinds of disks alike;
whatever the store says is compared with them. One model record is one record of the store, and
one more where a topic had to be created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log import MessageStore
from imago_testing.simulation.disk import Disk, Record
from imago_testing.stores.in_memory import HOST, START_MS, FakeClock, small_config
from imago_testing.stores.members import log_bytes
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.records.record import decode_record, make_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

TOPIC = "T"
SEGMENT_BYTES = 256 << 10
"""One file holds the log of a run: where files end is tested with the store itself."""


class StoreDisk(Disk):
    """A data folder with a store."""

    def __init__(self, uuid: str, meta_ident: Callable[[], int]) -> None:
        super().__init__(uuid)
        self.meta_ident = meta_ident
        self.vfs = MemoryVfs()
        self.clock = FakeClock()
        self._store: MessageStore | None = None

    @property
    def store(self) -> MessageStore:
        assert self._store is not None, "no process runs"
        return self._store

    def _open(self) -> MessageStore:
        config = small_config(segment_bytes_max=SEGMENT_BYTES)
        return MessageStore.open(config, clock=self.clock, vfs=self.vfs, threaded=False, lead=False)

    def _same(self) -> None:
        """What the store says is what the model says."""
        assert self.store.log_end == self.end, f"{self.uuid}: {self.store.log_end}, not {self.end}"
        assert self.store.epoch_seen == self.epoch_seen, f"{self.uuid}: {self.store.epoch_seen}"
        self.epochs = self.store.epochs

    # ---- a process and its end ---------------------------------------------------------------

    def boot_up(self) -> None:
        super().boot_up()
        self._store = self._open()
        self._same()

    def crash(self) -> None:
        store, self._store = self.store, None
        if self.clean_stop:
            store.close()
            return
        left = self.vfs.crashed(power_loss=False)
        store.close(clean=False)
        self.vfs = left

    def lose_power(self, rng: Random) -> list[Record]:
        """The file system decides what is left; the store has to make sense of it."""
        self.vfs = self.vfs.crashed(power_loss=True, rng=rng if rng.random() < 0.7 else None)
        store = self._open()
        end = store.log_end
        assert end >= self.synced, f"{self.uuid} synced {self.synced}, back at {end}"
        store.close(clean=False)
        return self.lost_to(end)

    def tear(self, rng: Random) -> list[Record]:
        """Torn files of stores have tests of their own."""
        del rng
        return []

    def damage(self, rng: Random, now_ms: int) -> bool:
        """So have damaged ones."""
        del rng, now_ms
        return False

    # ---- the log -----------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        self.store.lead(epoch)
        self.epoch_seen = epoch
        self._same()

    def promise(self, epoch: int) -> None:
        self.store.follow(epoch)
        self.epoch_seen = epoch
        self._same()

    def write(self, epoch: int, ident: int, size: int) -> Record:
        store = self.store
        if TOPIC not in store.topics():
            store.create_topic(TOPIC, {"name": TOPIC})
            self.append(Record(store.log_end, epoch, self.meta_ident()))
        body = b"%08d" % ident
        tail = store.tail(TOPIC, 0)
        store.append([make_entry(tail, body.ljust(size), b"", born_ms=START_MS, born_host=HOST)])
        record = Record(store.log_end, epoch, ident)
        self.append(record)
        self._same()
        return record

    def bytes_of(self, index: int) -> bytes:
        start = self.ends[index - 1] if index else self.start
        return log_bytes(self.store, start, self.ends[index])

    def take(self, record: Record, epoch_start: int, data: bytes) -> None:
        before = self.end
        end = self.store.append_replica(before, data, epoch=record.epoch, epoch_start=epoch_start)
        assert end == record.end, f"{self.uuid} took {before} to {end} of {record}"
        self.append(record)
        self._same()

    def truncate(self, end: int) -> None:
        self.store.truncate(end)
        super().truncate(end)
        self._same()

    def reset(self, start: int) -> None:
        self.store.reset(start)
        super().reset(start)
        self._same()

    def sync(self, end: int) -> None:
        self.store.request_sync()
        assert self.store.durable_end >= end, f"{self.uuid}: {self.store.durable_end} of {end}"
        super().sync(end)

    def expire(self, count: int) -> None:
        """Retention of stores works on files: it has tests of its own."""

    def judge(self, leader: StoreDisk, idents: list[int]) -> None:
        """The same bytes as the leader, and the queue that they make."""
        end = min(self.end, leader.end)
        assert log_bytes(self.store, 0, end) == log_bytes(leader.store, 0, end), self.uuid
        self.store.set_high_watermark(end)
        if TOPIC not in self.store.topics():
            return
        found = []
        for offset in range(self.store.tail(TOPIC, 0).next_offset):
            result = self.store.read(TOPIC, 0, offset, messages_max=1, bytes_max=1)
            if not result.body:
                break
            found.append(int(decode_record(result.body).body[:8]))
        assert found == idents[: len(found)], f"{self.uuid}: {found} of {idents}"
        assert len(found) >= len([r for r in self.records if r.end <= end and r.ident in idents])
