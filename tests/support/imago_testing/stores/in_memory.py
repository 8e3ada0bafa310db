"""Stores on a file system in memory, and a dumb model of what they must hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imago_log import FileSlice, MessageStore, MetaqStatus, ReadStatus, StoreConfig
from imago_wire.hot import metaq_whole
from imago_wire.records.record import decode_record, make_entry, metaq_block

if TYPE_CHECKING:
    from imago_testing.stores.vfs import MemoryVfs

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
DATA = Path("/data")
START_MS = 1_800_000_000_000


class FakeClock:
    """Epoch milliseconds that stand still until told."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def small_config(**changes: Any) -> StoreConfig:
    """Return settings whose files are so small that every border is met."""
    settings: dict[str, Any] = {
        "data_dir": DATA,
        "metaq_broker_id": 5,
        "store_host": HOST,
        "segment_bytes_max": 4096,
        "message_bytes_max": 1024,
        "metaq_segment_bytes_max": 700,
        "retention_ms": 0,
        "view_sync_interval_ms": 3000,
        "files_open_max": 8,
    }
    return StoreConfig(**(settings | changes))


def folder_config(folder: Path, **changes: Any) -> StoreConfig:
    """Return such settings for a folder of this machine, whose disk may be as full as it likes."""
    unbothered = {f"disk_{level}_ratio": 1.0 for level in ("clean", "force", "full")}
    return small_config(data_dir=folder, **(unbothered | changes))


def open_store(vfs: MemoryVfs, clock: FakeClock | None = None, **changes: Any) -> MessageStore:
    """Open a store whose background work runs inside the calls."""
    return MessageStore.open(
        small_config(**changes), clock=clock or FakeClock(), vfs=vfs, threaded=False
    )


@dataclass
class Sent:
    """One message as it was given to the store, and where it went."""

    topic: str
    queue_id: int
    offset: int
    body: bytes
    key: str
    tag: str
    place: int
    end: int
    position: int


@dataclass
class Model:
    """What was appended, in order, and what is being appended now."""

    sent: list[Sent] = field(default_factory=list)
    serial: int = 0
    in_flight: list[tuple[str, int, bytes, str, str]] = field(default_factory=list)

    def send(
        self, store: MessageStore, where: list[tuple[str, int, int]], *, whole: bool = False
    ) -> None:
        """Append one message of (topic, queue, size) each, in one call."""
        entries = []
        bodies = self.in_flight
        for topic, queue_id, size in where:
            self.serial += 1
            body = f"{self.serial:06d}".encode().ljust(size, b".")
            key, tag = f"k{self.serial % 7}", f"t{self.serial % 3}"
            properties = f"KEYS\x01{key}\x02TAGS\x01{tag}\x02".encode()
            tail = store.tail(topic, queue_id)
            entries.append(make_entry(tail, body, properties, born_ms=START_MS, born_host=HOST))
            bodies.append((topic, queue_id, body, key, tag))
        for (topic, queue_id, body, key, tag), placed in zip(
            bodies, store.append(entries, whole=whole), strict=True
        ):
            end = placed[1] + placed[2]
            self.sent.append(
                Sent(topic, queue_id, placed[0], body, key, tag, placed[1], end, placed[3])
            )
        self.in_flight = []

    def adopt(self, store: MessageStore) -> None:
        """Take in what a crash left of the append it interrupted: its first messages."""
        for topic, queue_id, body, key, tag in self.in_flight:
            known = [sent for sent in self.sent if (sent.topic, sent.queue_id) == (topic, queue_id)]
            offset = known[-1].offset + 1 if known else 0
            result = store.read(topic, queue_id, offset, messages_max=1, bytes_max=1)
            if result.status is not ReadStatus.FOUND:
                break
            record = decode_record(result.body)
            assert record.body == body
            place, position = record.physical_offset, int(record.properties["__METAQ_POS"], 16)
            end = place + record.size
            self.sent.append(Sent(topic, queue_id, offset, body, key, tag, place, end, position))
        self.in_flight = []

    def cut(self, end: int) -> None:
        """Forget what a crash took: everything that does not end below the log's end."""
        self.sent = [sent for sent in self.sent if sent.end <= end]

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted."""
        self.sent = [sent for sent in self.sent if sent.topic != topic]

    def by_queue(self) -> dict[tuple[str, int], list[Sent]]:
        """Return the messages of each queue in order."""
        queues: dict[tuple[str, int], list[Sent]] = {}
        for sent in self.sent:
            queues.setdefault((sent.topic, sent.queue_id), []).append(sent)
        return queues

    def check(self, store: MessageStore) -> None:
        """Compare every view of every queue with what was sent."""
        for (topic, queue_id), messages in self.by_queue().items():
            check_queue(store, topic, queue_id, messages)
        self.check_keys(store)

    def check_keys(self, store: MessageStore) -> None:
        """The newest keys find their messages, and no others."""
        for topic in {sent.topic for sent in self.sent}:
            for key in {sent.key for sent in self.sent[-2:]}:
                expected = [
                    sent.body
                    for sent in self.sent
                    if (sent.topic, sent.key) == (topic, key) and sent.place >= store.log_start
                ]
                found = store.find_key(topic, key, 0, 1 << 60, 10_000)
                bodies = [decode_record(record).body for record in found]
                assert bodies[-len(expected) :] == expected if expected else True


def check_queue(store: MessageStore, topic: str, queue_id: int, messages: list[Sent]) -> None:
    """Every message above the log's start is read, in order, and nothing else."""
    live = [sent for sent in messages if sent.place >= store.log_start]
    low, high = store.queue_range(topic, queue_id)
    assert (low, high) == (messages[-1].offset + 1 - len(live), messages[-1].offset + 1)
    found = []
    offset = low
    while offset < high:
        result = store.read(topic, queue_id, offset, messages_max=9, bytes_max=2000)
        assert result.status is ReadStatus.FOUND
        found += split_records(result.body)
        offset = result.next_offset
    assert [record.body for record in found] == [sent.body for sent in live]
    assert [record.queue_offset for record in found] == [sent.offset for sent in live]
    assert [record.physical_offset for record in found] == [sent.place for sent in live]
    if live and live[0].position >= 0:
        check_positions(store, topic, queue_id, live)


def check_positions(store: MessageStore, topic: str, queue_id: int, live: list[Sent]) -> None:
    """The bytes that MetaQ's readers get are those of the records, at the right positions."""
    records = [store.record_at(sent.place) for sent in live]
    expected = metaq_block([record for record in records if record is not None])
    first = live[0].position
    low, high = store.position_range(topic, queue_id)
    assert low >= first
    assert high == first + len(expected)
    found = bytearray()
    position = low
    while position < high:
        read = store.read_positions(topic, queue_id, position, 600)
        assert read.status is MetaqStatus.FOUND
        assert read.position == position
        data = whole_messages(read.data)
        found += data
        position += len(data)
    assert bytes(found) == expected[low - first :]


def whole_messages(data: bytes | FileSlice) -> bytes:
    """Return what a reader takes of a MetaQ read: it asks again for a message that was cut."""
    found = metaq_bytes(data)
    return found[: metaq_whole(found)]


def metaq_bytes(data: bytes | FileSlice) -> bytes:
    """Return the bytes of a MetaQ read, wherever they are."""
    return data.read() if isinstance(data, FileSlice) else data


def split_records(body: bytes) -> list[Any]:
    """Decode the whole records of a read."""
    records = []
    at = 0
    while at < len(body):
        record = decode_record(body, at)
        records.append(record)
        at += record.size
    return records
