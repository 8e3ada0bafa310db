"""What the log no longer has here is read from the bucket's files as if it were."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

import orjson
import pytest

from imago_log import MetaqStatus, ReadStatus
from imago_log.reading.remote import RemoteAwayError, RemoteMissError
from imago_log.tier import reader as reader_module
from imago_log.tier.index import (
    MAGIC,
    Key,
    TierDirectory,
    TierRefusedError,
    build_index,
    decode_directory,
)
from imago_log.tier.manifest import TierManifest, TierSegment
from imago_log.tier.reader import TierReader
from imago_testing.stores.in_memory import FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.errors import WrongError
from imago_wire.records.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log import MessageStore
    from imago_log.tier.index import TierRow

BLOCK = 512


@dataclass
class Bucket:
    """Objects, of which a block is here from the second time that it is asked for."""

    objects: dict[str, bytes] = field(default_factory=dict)
    here: set[tuple[str, int]] = field(default_factory=set)
    woken: list[Key] = field(default_factory=list)
    away: bool = False
    misses: int = 0

    def read(self, name: str, size: int, start: int, length: int) -> bytes:
        assert size == len(self.objects[name])
        assert 0 <= start <= start + length <= size
        wanted = {(name, at) for at in range(start // BLOCK, -(-(start + length) // BLOCK))}
        if wanted - self.here:
            if self.away:
                raise RemoteAwayError("away")
            self.here |= wanted
            self.misses += 1
            raise RemoteMissError(self.woken.append)
        return self.objects[name][start : start + length]

    def forget(self, name: str) -> None:
        self.here = {block for block in self.here if block[0] != name}


def archive(store: MessageStore, bucket: Bucket, epoch: int = 1) -> TierManifest:
    """Take all files that are no longer written into the bucket."""
    log, segments = store.components.storage.log, list[TierSegment]()
    before: dict[Key, TierRow] = {}
    topics = {
        name: (topic.incarnation, topic.birth)
        for name, topic in store.components.storage.metadata.topics.items()
    }
    for base in log.bases()[:-1]:
        built = build_index(log, base, topics, before, pause=lambda _: None)
        size = log.segment_size
        segment = TierSegment(
            base,
            size,
            len(built.data),
            built.directory_size,
            built.newest_ms,
            built.crc,
            f"f{base}",
        )
        bucket.objects[segment.log] = log.read(base, size)
        bucket.objects[segment.index] = built.data
        before = decode_directory(built.data[: built.directory_size])
        segments.append(segment)
    return TierManifest("c", epoch, 1, tuple(segments))


@dataclass
class Tiered:
    """A store whose oldest files are only in the bucket."""

    clock: FakeClock
    model: Model
    store: MessageStore
    bucket: Bucket
    remote: TierReader

    def again(self, read: Callable[[], object]) -> object:
        """Come again until nothing is on its way."""
        for _ in range(500):
            found = read()
            status = getattr(found, "status", None)
            if not self.missed() and status is not ReadStatus.ON_ITS_WAY:
                return found
        raise AssertionError("it never came")

    def missed(self) -> bool:
        missed, self.bucket.misses = self.bucket.misses, 0
        return bool(missed)


@pytest.fixture
def tiered() -> Tiered:
    clock, model, bucket = FakeClock(), Model(), Bucket()
    store = open_store(MemoryVfs(), clock, retention_ms=60_000)
    store.create_topic("t", {"queues": 2})
    store.create_topic("late", {"queues": 1})
    for round_ in range(60):
        clock.now_ms += 1000
        model.send(store, [("t", 0, 200), ("t", 1, 90 + round_), ("t", 0, 1)])
        if round_ == 40:
            model.send(store, [("late", 0, 50)])
        if round_ % 10 == 0:
            store.tick()
    manifest = archive(store, bucket)
    first = manifest.segments[0]
    remote = TierReader(bucket, 4096, lambda name: name == "left")
    remote.take(manifest, decode_directory(bucket.objects[first.index][: first.directory_size]))
    clock.now_ms += 50_000
    for _ in range(30):
        store.tick()
    assert store.log_start > 3 * 4096
    assert store.log_start <= manifest.end
    store.read_remote(remote)
    return Tiered(clock, model, store, bucket, remote)


def test_every_message_is_read_once_and_in_order(tiered: Tiered) -> None:
    store = tiered.store
    for queue, expected in (
        (("t", 0), [each for each in tiered.model.sent if (each.topic, each.queue_id) == ("t", 0)]),
        (("t", 1), [each for each in tiered.model.sent if (each.topic, each.queue_id) == ("t", 1)]),
        (("late", 0), [each for each in tiered.model.sent if each.topic == "late"]),
    ):
        assert store.queue_range(*queue) == (0, len(expected))
        at, bodies, waited = 0, list[bytes](), 0
        while at < len(expected):
            found = store.read(*queue, at, messages_max=3, bytes_max=1000)
            if found.status is ReadStatus.ON_ITS_WAY:
                assert (found.next_offset, found.count) == (at, 0)
                waited += 1
                assert waited < 1000
                continue
            assert found.status is ReadStatus.FOUND
            assert found.max_offset == len(expected)
            body = memoryview(found.body)
            while body:
                record = decode_record(body)
                bodies.append(record.body)
                body = body[record.size :]
            at = found.next_offset
        assert bodies == [each.body for each in expected]
        assert waited or queue[0] == "late"
        assert queue in tiered.bucket.woken or queue[0] == "late"


def test_filters_and_positions_find_the_same(tiered: Tiered) -> None:
    store, sent = tiered.store, [e for e in tiered.model.sent if (e.topic, e.queue_id) == ("t", 1)]
    tags = frozenset({_signed(b"t1")})
    at, found_bodies = 0, list[bytes]()
    while at < len(sent):
        found = store.read("t", 1, at, messages_max=4, bytes_max=4000, tags=tags)
        assert found.status in (
            ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.ON_ITS_WAY
        )  # fmt: skip
        assert found.next_offset > at or found.status is ReadStatus.ON_ITS_WAY
        body, at = memoryview(found.body), found.next_offset
        while body:
            record = decode_record(body)
            found_bodies.append(record.body)
            body = body[record.size :]
    assert found_bodies == [each.body for each in sent if each.tag == "t1"]
    assert store.position_range("t", 1)[0] == 0
    position, end, metaq = 0, store.position_range("t", 1)[1], b""
    while position < end:
        read = store.read_positions("t", 1, position, 700)
        if read.status is MetaqStatus.AT_END:
            assert read.position == position
            assert tiered.missed()
            continue
        assert read.status is MetaqStatus.FOUND
        assert read.max_position == end
        data = read.data if isinstance(read.data, bytes) else read.data.read()
        whole = _whole(data)
        metaq, position = metaq + data[:whole], position + whole
    assert len(metaq) == end
    assert [sent_.position for sent_ in sent] == _starts(metaq)


def _signed(tag: bytes) -> int:
    """Return a tag's code, as clients send it: Java's hash."""
    code = 0
    for byte in tag:
        code = (code * 31 + byte) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def _whole(data: bytes) -> int:
    at = 0
    while at + 20 <= len(data) and at + 20 + int.from_bytes(data[at : at + 4], "big") <= len(data):
        at += 20 + int.from_bytes(data[at : at + 4], "big")
    return at


def _starts(data: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += 20 + int.from_bytes(data[at : at + 4], "big")
    return starts


def test_times_and_ids_are_found_there(tiered: Tiered) -> None:
    store, model = tiered.store, tiered.model
    sent = [each for each in model.sent if (each.topic, each.queue_id) == ("t", 1)]
    first_ms = tiered.clock.now_ms - 50_000 - 59_000
    for index in (0, 7, 30, len(sent) - 1):
        for upper in (False, True):

            def ask(ms: int = first_ms + index * 1000, upper: bool = upper) -> int | None:
                try:
                    return store.offset_by_time("t", 1, ms, upper=upper)
                except RemoteMissError:
                    return None

            assert tiered.again(ask) == index
    place = sent[2].place
    assert place < store.log_start
    record = tiered.again(lambda: store.record_at(place))
    assert isinstance(record, bytes)
    assert decode_record(record).body == sent[2].body
    assert store.record_at(place + 1) is None


def test_a_bucket_that_is_away_is_said_and_nothing_is_skipped(tiered: Tiered) -> None:
    store = tiered.store
    tiered.bucket.away = True
    found = store.read("t", 0, 0, messages_max=3, bytes_max=1000)
    assert (found.status, found.next_offset) == (ReadStatus.REMOTE_AWAY, 0)
    assert store.read_positions("t", 1, 0, 700).status is MetaqStatus.REMOTE_AWAY
    low = tiered.store.components.storage.visibility
    here = low.bounds(store.components.directory.get("t", 0))[0]
    assert store.read("t", 0, here, messages_max=3, bytes_max=1000).status is ReadStatus.FOUND


def test_who_begins_before_the_bucket_is_known_waits(tiered: Tiered) -> None:
    tiered.remote.lose()
    store = tiered.store
    assert store.queue_range("t", 0)[0] == 0
    found = store.read("t", 0, 0, messages_max=3, bytes_max=1000)
    assert found.status is ReadStatus.REMOTE_AWAY
    with pytest.raises(RemoteAwayError):
        store.offset_by_time("t", 0, 1)


def test_what_has_expired_there_is_passed_by(tiered: Tiered) -> None:
    manifest, bucket, store = tiered.remote.manifest, tiered.bucket, tiered.store
    kept = manifest.next(2, manifest.segments[2:])
    first = kept.segments[0]
    rows = decode_directory(bucket.objects[first.index][: first.directory_size])
    tiered.remote.take(kept, rows)
    low = store.queue_range("t", 0)[0]
    assert low == rows["t", 0].first > 0
    found = tiered.again(lambda: store.read("t", 0, 0, messages_max=3, bytes_max=1000))
    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, low)  # type: ignore[attr-defined]


def test_a_topic_made_anew_has_nothing_of_the_old_one(tiered: Tiered) -> None:
    store = tiered.store
    store.delete_topic("t")
    store.create_topic("t", {"queues": 2})
    Model().send(store, [("t", 0, 20)])
    assert store.queue_range("t", 0) == (0, 1)
    found = store.read("t", 0, 0, messages_max=9, bytes_max=1000)
    assert (found.status, found.count) == (ReadStatus.FOUND, 1)


def test_a_damaged_object_is_fetched_anew(tiered: Tiered) -> None:
    bucket, segment = tiered.bucket, tiered.remote.manifest.segments[0]
    good = bucket.objects[segment.log]
    bucket.objects[segment.log] = bytes(len(good))
    found = tiered.again(lambda: tiered.store.read("t", 0, 0, messages_max=3, bytes_max=1000))
    assert found.status is ReadStatus.REMOTE_AWAY  # type: ignore[attr-defined]
    bucket.objects[segment.log] = good
    found = tiered.again(lambda: tiered.store.read("t", 0, 0, messages_max=3, bytes_max=1000))
    assert found.status is ReadStatus.FOUND  # type: ignore[attr-defined]


def test_a_damaged_file_does_not_go(tiered: Tiered) -> None:
    store = tiered.store
    log = store.components.storage.log
    base = log.bases()[0]
    file = log.file_of(base)
    file.vfs.pwrite(file.fd, b"\xff" * 40, 700)
    with pytest.raises(TierRefusedError, match=r"log offset .*checksum"):
        build_index(log, base, {"t": (1, 0)}, {}, pause=lambda _: None)


def test_an_index_has_all_of_more_queues_than_are_held_at_a_time() -> None:
    """The compiled scan holds 256, and asks again for one that it gave up meanwhile."""
    store = open_store(MemoryVfs(), segment_bytes_max=1 << 17)
    store.create_topic("many", {"queues": 300})
    for _ in range(3):
        Model().send(store, [("many", queue, 20) for queue in range(300)])
    log = store.components.storage.log
    topic = store.components.storage.metadata.topics["many"]
    topics = {"many": (topic.incarnation, topic.birth)}
    built = build_index(log, log.bases()[0], topics, {}, pause=lambda _: None)
    rows = decode_directory(built.data[: built.directory_size])
    assert [row.first for row in rows.values()] == [0] * 300
    assert sum(row.end for row in rows.values()) > 600, "all that the file has"


def test_limits_of_what_is_kept_in_memory(tiered: Tiered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "DIRECTORIES_MAX", 1)
    monkeypatch.setattr(reader_module, "QUEUES_MAX", 1)
    monkeypatch.setattr(reader_module, "NEAR_MAX", 1)
    monkeypatch.setattr(reader_module, "NEAR_BYTES", 1)
    test_every_message_is_read_once_and_in_order(tiered)


@pytest.mark.shipped_limits
def test_directories_of_many_queues_take_little_memory(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tiered.remote._directories
    test_every_message_is_read_once_and_in_order(tiered)
    assert len(kept) > 3
    sizes = sorted(map(len, kept.values()))
    monkeypatch.setattr(reader_module, "DIRECTORIES_BYTES_MAX", 2 * sizes[-1])
    kept.clear()
    tiered.bucket.here.clear()
    test_every_message_is_read_once_and_in_order(tiered)
    assert 1 <= len(kept) <= 2 * sizes[-1] // sizes[0]
    assert sum(map(len, kept.values())) <= 2 * sizes[-1]


@pytest.mark.parametrize("count", [0, 1, 2, 37])
def test_a_row_of_a_directory_is_found_among_all(count: int) -> None:
    names = [f"{'Zü' * (n % 3)}%LMQ%$t-{n // 3}" for n in range(count)]
    rows = sorted((name, queue) for name in set(names) for queue in (0, 2, 10))
    said = orjson.dumps([[*key, 7, n, n + 1, 32 * n, -1, -1] for n, key in enumerate(rows)])
    data = MAGIC + len(said).to_bytes(4, "big") + crc32(said).to_bytes(4, "big") + said
    every, one = decode_directory(data), TierDirectory(data)
    assert len(every) == len(rows)
    for key, row in every.items():
        assert one.get(key) == row
    for topic, queue in [*rows, ("a", 0), ("", 0), ("zz", 1)]:
        assert one.get((topic, queue + 1)) is None
    with pytest.raises(WrongError, match="damaged"):
        TierDirectory(data[:-1])


def test_a_manifest_is_read_as_it_was_written(tiered: Tiered) -> None:
    manifest = tiered.remote.manifest
    assert TierManifest.decode(manifest.encode()) == manifest
    assert manifest.at(manifest.segments[1].base) == manifest.segments[1]
    assert manifest.at(manifest.end) is None
    for wrong in (b"", b"{}", manifest.encode().replace(b'"version":1', b'"version":2'),
                  manifest.encode().replace(b'"base":4096', b'"base":-4'),
                  manifest.encode().replace(b'"base":4096', b'"base":0')):  # fmt: skip
        with pytest.raises(WrongError, match="manifest"):
            TierManifest.decode(wrong)
