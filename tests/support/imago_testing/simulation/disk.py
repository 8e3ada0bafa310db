"""What survives of a member: a model of its log, its epochs and its notes."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.core.shard.values import Epochs, Log

if TYPE_CHECKING:
    from random import Random


class Record(NamedTuple):
    """One message of the model: what matters of it, and where it ends in the log."""

    end: int
    epoch: int
    ident: int
    """Unique over the run, a repeated put included."""


class Disk:
    """A log with un-synced bytes, and the small files that are synced whenever they change.

    `chain[i]` is a hash of everything up to record i, so two logs are equal up to an offset
    exactly when their chains are equal there.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.start = 0
        self.base_chain = 0
        self.ends: list[int] = []
        self.records: list[Record] = []
        self.chain: list[int] = []
        self.epochs: Epochs = ()
        self.synced = 0
        self.epoch_seen = 0
        self.high_watermark = 0
        self.unclean = False
        self.clean_stop = True
        self.boot = 0
        self.booted = 0
        """Boot of the machine under which the member was last started."""
        self.incarnation = 0
        """Of the last registration."""
        self.lost_incarnation = 0
        """The truth, for the checker: lives up to this one are not what the disk holds."""
        self.damaged: dict[int, int] = {}
        """Records that cannot be read, by ident, with their ends."""
        self.damaged_ms = 0
        """When the last of them was damaged."""

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.start

    def log(self) -> Log:
        return Log(
            self.start, self.end, self.epochs, self.high_watermark, damaged=bool(self.damaged)
        )

    def chain_at(self, offset: int) -> int | None:
        """Hash of everything below a record border; None where there is none."""
        if offset == self.start:
            return self.base_chain
        index = bisect_left(self.ends, offset)
        if index < len(self.ends) and self.ends[index] == offset:
            return self.chain[index]
        return None

    def index_after(self, offset: int) -> int:
        """Index of the first record that begins at or after a border."""
        return bisect_left(self.ends, offset + 1)

    def lead(self, epoch: int) -> None:
        """Begin to write in an epoch of its own; on disk when it returns."""
        self.epoch_seen = epoch
        self.begin_epoch(epoch, self.end)

    def promise(self, epoch: int) -> None:
        """Take nothing of a lower epoch any more; on disk when it returns."""
        self.epoch_seen = epoch

    def write(self, epoch: int, ident: int, size: int) -> Record:
        """Append a put as the leader."""
        record = Record(self.end + size, epoch, ident)
        self.append(record)
        return record

    def bytes_of(self, _: int) -> bytes:
        """The bytes of the record with this index; the model has none."""
        return b""

    def take(self, record: Record, epoch_start: int, _: bytes) -> None:
        """Append a record of the leader's log, written in an epoch that starts there."""
        self.begin_epoch(record.epoch, epoch_start)
        self.append(record)

    def sync(self, end: int) -> None:
        """What is below this end survives a loss of power from now on."""
        self.synced = end

    def crash(self) -> None:
        """The process ends, in whatever way."""

    def append(self, record: Record) -> None:
        before = self.chain[-1] if self.chain else self.base_chain
        self.ends.append(record.end)
        self.records.append(record)
        self.chain.append(hash((before, record.ident, record.end)))

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Note where an epoch begins; one in which nothing was written gives way."""
        if not self.epochs or self.epochs[-1] != (epoch, start):
            kept = tuple(pair for pair in self.epochs if pair[0] < epoch and pair[1] < start)
            self.epochs = (*kept, (epoch, start))

    def truncate(self, end: int) -> None:
        keep = self.index_after(end)
        assert not self.ends or end in {self.start, *self.ends[keep - 1 : keep]}, "a border"
        del self.ends[keep:], self.records[keep:], self.chain[keep:]
        self.synced = min(self.synced, end)
        self.high_watermark = min(self.high_watermark, end)
        self.damaged = {ident: at for ident, at in self.damaged.items() if at <= end}
        kept = tuple(pair for pair in self.epochs if pair[1] < end)
        if len(kept) < len(self.epochs):
            self.epochs = (*kept, (self.epochs[-1][0], end))

    def reset(self, start: int) -> None:
        self.ends, self.records, self.chain = [], [], []
        self.damaged = {}
        self.start, self.synced, self.high_watermark = start, start, start
        self.base_chain = 0
        self.epochs = ()

    def expire(self, count: int) -> None:
        """Retention: the oldest records are thrown away, below the high watermark only.

        Never the last one: the epoch of the log's last byte has to stay known.
        """
        below = self.index_after(min(self.high_watermark, self.synced))
        keep = min(count, below, len(self.ends) - 1)
        if keep <= 0:
            return
        self.base_chain, self.start = self.chain[keep - 1], self.ends[keep - 1]
        del self.ends[:keep], self.records[:keep], self.chain[:keep]
        self.damaged = {ident: at for ident, at in self.damaged.items() if at > self.start}
        ends = [start for _, start in self.epochs[1:]]
        dead = sum(end <= self.start for end in ends)
        self.epochs = self.epochs[dead:]

    def lose_power(self, rng: Random) -> list[Record]:
        """Lose what is not synced, or a part of it; return what is gone."""
        first = self.index_after(self.synced)
        keep = rng.randint(first, len(self.ends))
        return self.lost_to(self.ends[keep - 1] if keep else self.start)

    def lost_to(self, end: int) -> list[Record]:
        """The machine stopped, and this is what is left of the log."""
        self.boot += 1
        lost = self.records[self.index_after(end) :]
        Disk.truncate(self, end)
        self.synced = self.end
        if not self.clean_stop:
            self.lost_incarnation = max(self.lost_incarnation, self.incarnation)
        return lost

    def tear(self, rng: Random) -> list[Record]:
        """Files lose what was not synced while nobody runs, and no boot tells of it."""
        first = self.index_after(self.synced)
        keep = first if rng.random() < 0.7 else rng.randint(first, len(self.ends))
        lost = self.records[keep:]
        if lost:
            Disk.truncate(self, self.ends[keep - 1] if keep else self.start)
            self.lost_incarnation = max(self.lost_incarnation, self.incarnation)
        return lost

    def damage(self, rng: Random, now_ms: int) -> bool:
        """Make a record unreadable that readers may have seen; return whether there is one."""
        count = self.index_after(self.high_watermark)
        if not count:
            return False
        record = self.records[rng.randrange(count)]
        self.damaged[record.ident] = record.end
        self.damaged_ms = now_ms
        return True

    def boot_up(self) -> None:
        """Start of a process: find out whether the last one ended well."""
        if not self.clean_stop and self.booted != self.boot:
            self.unclean = True
        self.booted, self.clean_stop = self.boot, False


def holds(disk: Disk, ident: int, end: int) -> bool:
    """Whether a log holds this record at this place, or has let it expire."""
    if end <= disk.start:
        return True
    index = disk.index_after(end) - 1
    return index >= 0 and disk.records[index].end == end and disk.records[index].ident == ident
