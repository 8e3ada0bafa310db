"""Members of one shard on file systems in memory, without a network: frames are calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from imago_log import MessageStore, MetaqStatus, ReadStatus
from imago_testing.stores.in_memory import DATA, small_config, whole_messages

if TYPE_CHECKING:
    from imago_log.commitlog.epochs import Epochs
    from imago_testing.stores.in_memory import FakeClock
    from imago_testing.stores.vfs import MemoryVfs

QUEUES = 3


def open_member(vfs: MemoryVfs, clock: FakeClock, **changes: Any) -> MessageStore:
    """Open a store that waits for its role; background work runs inside the calls."""
    config = small_config(**changes)
    return MessageStore.open(config, clock=clock, vfs=vfs, threaded=False, lead=False)


@dataclass
class Member:
    """One data folder and the process on it."""

    vfs: MemoryVfs
    store: MessageStore
    unread: bytes = b""
    """Bytes of the leader behind the log's end: the front of a record that came in part."""
    metadata: set[tuple[str, str]] = field(default_factory=set)
    """Kinds and keys that the store has told to have changed."""

    @classmethod
    def start(cls, vfs: MemoryVfs, clock: FakeClock, **changes: Any) -> Member:
        member = cls(vfs, open_member(vfs, clock, **changes))
        member.store.on_metadata.add(member.metadata.update)
        return member

    def join(self, leader: MessageStore) -> None:
        """Promise the leader's epoch, cut what it does not have, and take its metadata."""
        store = self.store
        store.follow(leader.epoch_seen)
        self.unread = b""
        end = common_end(store, leader)
        if end is None or end < max(store.log_start, leader.log_start):
            if not store.log_start == store.log_end == leader.log_start:
                store.reset(leader.log_start)
        else:
            store.truncate(end)
        if store.needs_metadata:
            store.install_metadata(leader.metadata_snapshot())

    def pull(self, leader: MessageStore, bytes_max: int) -> None:
        """Take one frame of the leader's log."""
        store = self.store
        offset = store.log_end + len(self.unread)
        fresh = leader.read_log(offset, bytes_max)
        if not fresh:
            return
        epoch, start = next(pair for pair in reversed(leader.epochs) if pair[1] <= offset)
        data = self.unread + fresh
        before = store.log_end
        end = store.append_replica(before, memoryview(data), epoch=epoch, epoch_start=start)
        self.unread = data[end - before :]

    def catch_up(self, leader: MessageStore, bytes_max: int = 1 << 20) -> None:
        """Take all that the leader has."""
        while self.store.log_end < leader.log_end:
            self.pull(leader, bytes_max)


def common_end(own: MessageStore, theirs: MessageStore) -> int | None:
    """Return where two logs part, by their epochs alone; None: nothing in common."""
    spans = _spans(theirs.epochs, theirs.log_end)
    for epoch, (start, end) in reversed(_spans(own.epochs, own.log_end).items()):
        if epoch in spans and spans[epoch][0] == start:
            return min(end, spans[epoch][1])
    return None


def _spans(epochs: Epochs, log_end: int) -> dict[int, tuple[int, int]]:
    ends = [*(start for _, start in epochs[1:]), log_end][: len(epochs)]
    return {epoch: (start, end) for (epoch, start), end in zip(epochs, ends, strict=True)}


def log_bytes(store: MessageStore, start: int, end: int) -> bytes:
    """Return a part of a store's log, over all files."""
    parts = []
    while start < end:
        parts.append(bytes(store.read_log(start, end - start)))
        start += len(parts[-1])
    return b"".join(parts)


def rebuilt(member: Member, clock: FakeClock, **changes: Any) -> MessageStore:
    """Open a copy of which only the log is left, at the same high watermark."""
    left = member.vfs.crashed(power_loss=False)
    for path in left.files():
        if path.parent != DATA / "commitlog":
            left.unlink(path)
    left.folders = {folder for folder in left.folders if DATA not in folder.parents}
    store = open_member(left, clock, **changes)
    store.set_high_watermark(member.store.high_watermark)
    return store


def views(store: MessageStore, keys: list[str]) -> dict[Any, Any]:
    """Return everything that a reader can find out."""
    found: dict[Any, Any] = {
        "topics": dict(store.topics()),
        "offset": dict(store.meta("offset")),
        "ends": (store.log_start, store.log_end, store.high_watermark),
    }
    for topic in [*store.topics(), "IMAGO_META"]:
        for queue_id in range(QUEUES):
            found[topic, queue_id] = _queue(store, topic, queue_id)
        for key in keys:
            found[topic, key] = store.find_key(topic, key, 0, 1 << 60, 1000)
    return found


def differences(one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    """Return where two mappings differ."""
    names = one.keys() | other.keys()
    return {
        name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)
    }


def _queue(store: MessageStore, topic: str, queue_id: int) -> tuple[Any, ...]:
    low, high = store.queue_range(topic, queue_id)
    offset, records = low, b""
    while offset < high:
        result = store.read(topic, queue_id, offset, messages_max=9, bytes_max=2000)
        assert result.status is ReadStatus.FOUND
        assert offset < result.next_offset <= high
        records += result.body
        offset = result.next_offset
    first, last = store.position_range(topic, queue_id)
    first = max(first, store.position_of(topic, queue_id, low))
    position, messages = first, b""
    while position < last:
        read = store.read_positions(topic, queue_id, position, 600)
        assert (read.status, read.position) == (MetaqStatus.FOUND, position)
        data = whole_messages(read.data)
        messages += data
        position += len(data)
    times = [store.offset_by_time(topic, queue_id, ms) for ms in (0, 1 << 60)]
    return (low, high) if low < high else (high, high), records, last, messages, times
