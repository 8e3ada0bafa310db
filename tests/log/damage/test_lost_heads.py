"""Behind a head that the device lost nothing in a body is believed, whatever else is left.

Where the unit of a record's queue names it, records are read again behind the damage; where nothing
does, the rest of the file is out of service, and another member has it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from imago_broker.replication.leader.buffer_pool import Lender
from imago_log import MessageStore, ReadStatus
from imago_log.commitlog.borders import record_places
from imago_log.commitlog.damage import HEALING_MS
from imago_log.metadata.changes import META_TOPIC, encode_changes
from imago_testing.stores.in_memory import (
    DATA,
    HOST,
    START_MS,
    FakeClock,
    open_store,
    split_records,
)
from imago_testing.stores.members import Member, log_bytes
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.hot import QueueTail, RecordBuilder
from imago_wire.record_format.layout import blank_record
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from pathlib import Path

FILE = 4096
CREATED = {"incarnation": 1, "birth": 0, "dual": True, "value": {}}
EVIL = [("topic", "T", None), ("topic", "EVIL", CREATED), ("offset", "g", 999_999)]
BODY_AT = 88
VIEW_FOLDERS = ("consumequeue", "consumequeue_v", "index")
LEFT = ["all", "no mark", "no queues", "log alone"]
SEEDS = 60
Part = bytes | tuple[str, int]


def path_of(place: int) -> Path:
    return DATA / "commitlog" / f"{place - place % FILE:020d}"


def hidden(place: int, what: str, offset: int) -> bytes:
    """A whole record of a place, as only the store makes them."""
    if what == "blank":
        return blank_record(FILE - place % FILE)
    meta = what == "change"
    tail = QueueTail(META_TOPIC.encode() if meta else b"T", 0, dual=not meta, next_offset=offset)
    body = encode_changes(EVIL)[0] if meta else b"never sent"
    entry = make_entry(tail, body, b"", born_ms=START_MS, born_host=HOST)
    data, _ = RecordBuilder(HOST, 5, 0).build([entry], 0, place, START_MS, 1 << 20)
    return bytes(data)


def made(parts: list[Part], place: int) -> bytes:
    """The body of a producer who knows where it will stand."""
    body = b""
    for part in parts:
        body += part if isinstance(part, bytes) else hidden(place + len(body), *part)
    return body[:1000]


def some_parts(rng: random.Random) -> list[Part]:
    return [
        rng.randbytes(rng.randrange(60))
        if rng.random() < 0.3
        else (rng.choice(["change", "message", "blank"]), rng.randrange(10))
        for _ in range(rng.randrange(4))
    ]


@dataclass
class Story:
    """A member's log with messages that hide records, and another member that has the same."""

    seed: int
    vfs: MemoryVfs = field(default_factory=MemoryVfs)
    clock: FakeClock = field(default_factory=FakeClock)
    sent: dict[int, bytes] = field(default_factory=dict)
    """Bodies by place."""
    said: list[int] = field(default_factory=list)
    """What was said of a group's offset."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.leader = Member.start(MemoryVfs(), self.clock)
        self.leader.store.lead(1)
        self.member = Member.start(self.vfs, self.clock)
        self.leader.store.create_topic("T", {})
        self.member.join(self.leader.store)

    def send(self, parts: list[Part]) -> None:
        store = self.leader.store
        body = made(parts, store.log_end + BODY_AT)
        tail = store.tail("T", 0)
        entry = make_entry(tail, body, b"", born_ms=START_MS, born_host=HOST)
        (placed,) = store.append([entry])
        self.sent[placed[1]] = body

    def say(self, offset: int) -> None:
        self.said.append(offset)
        self.leader.store.put_meta([("offset", "g", offset)])

    def changes(self) -> set[int]:
        """Where the real changes of metadata are."""
        found = self.leader.store.read(META_TOPIC, 0, 0, messages_max=10_000, bytes_max=1 << 20)
        return {record.physical_offset for record in split_records(found.body)}

    def write(self, bodies_sent: list[list[Part]]) -> None:
        for parts in bodies_sent:
            self.send(parts)
            chance = self.rng.random()
            if chance < 0.3:
                self.say(self.rng.randrange(1000))
            if chance < 0.5:
                self.copy()
            if self.rng.random() < 0.3:
                self.clock.now_ms += self.rng.choice([300, 4000])
                for store in (self.leader.store, self.member.store):
                    store.request_sync()
                    store.tick()
        self.copy()

    def copy(self) -> None:
        self.member.catch_up(self.leader.store)
        for store in (self.leader.store, self.member.store):
            store.set_high_watermark(self.leader.store.log_end)

    def stop(self, how: str) -> None:
        left = self.vfs
        if how != "clean":
            left = left.crashed(power_loss=how == "power lost", rng=self.rng)
        self.member.store.close(clean=how == "clean")
        self.vfs = left

    def lose(self, which: int, size: int, fill: bytes) -> None:
        """Have the device lose the first bytes of a record, and perhaps more."""
        places = sorted(self.sent)
        place = places[which % len(places)]
        content = bytearray(self.vfs.content(path_of(place)))
        at = place % FILE
        size = min(size, len(content) - at)
        content[at : at + size] = (fill * size)[:size]
        self.vfs.put(path_of(place), bytes(content))

    def leave(self, what: str) -> None:
        gone = {"all": (), "no mark": ("config/views",), "no queues": VIEW_FOLDERS}
        for path in self.vfs.files():
            name = str(path.relative_to(DATA))
            lost = not name.startswith("commitlog/")
            if lost if what == "log alone" else name.startswith(gone[what]):
                self.vfs.unlink(path)
        if what == "no queues":
            roots = {DATA / name for name in VIEW_FOLDERS}
            self.vfs.folders = {
                each for each in self.vfs.folders if not roots & {each, *each.parents}
            }

    def start(self, *, alone: bool) -> MessageStore:
        if alone:
            return open_store(self.vfs, self.clock)
        self.member = Member.start(self.vfs, self.clock)
        self.clock.now_ms += HEALING_MS
        self.member.store.set_high_watermark(self.leader.store.log_end)
        return self.member.store

    def no_body_speaks(self, store: MessageStore) -> None:
        assert set(store.topics()) <= {"T"}
        assert store.meta("offset").get("g", 0) in {0, *self.said}
        low, high = store.queue_range("T", 0)
        offset = low
        while offset < high:
            result = store.read("T", 0, offset, messages_max=3, bytes_max=4000)
            if result.status is ReadStatus.FOUND:
                for record in split_records(result.body):
                    assert self.sent[record.physical_offset] == record.body
            if result.next_offset == offset:  # found just now: another member may have it
                self.clock.now_ms += HEALING_MS
            offset = result.next_offset
        changes = self.changes()
        for place in record_places(log_bytes(self.leader.store, 0, self.leader.store.log_end), 0):
            record = store.record_at(place)
            if record is not None and place not in self.sent:
                assert place in changes

    def heal(self) -> None:
        """Let the member follow again, and have what it lacks from the leader."""
        store, leader = self.member.store, self.leader.store
        self.member.join(leader)
        self.member.catch_up(leader)
        store.set_high_watermark(leader.log_end)
        for _ in range(50):
            if not store.damaged:
                break
            found = store.damaged_ranges()[0]
            data = bytes(Lender(leader).lend(found.start, found.end - found.start))
            assert store.heal(found.start, data)
            self.no_body_speaks(store)


def told(seed: int) -> Story:
    """A story up to where a member's device has lost the head of a record, and more."""
    story = Story(seed)
    rng = story.rng
    story.write([some_parts(rng) for _ in range(rng.randrange(2, 25))])
    story.stop(rng.choice(["killed", "clean", "power lost"]))
    for _ in range(rng.choice([1, 1, 2])):
        size = rng.choice([rng.randrange(1, 60), rng.randrange(1, 400)])
        story.lose(rng.randrange(25), size, rng.choice([b"\0", b"\xff", b"ab"]))
    story.leave(rng.choice(LEFT))
    return story


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_body_speaks_behind_a_lost_head(seed: int) -> None:
    story = told(seed)
    for _ in range(2):
        store = story.start(alone=True)
        story.no_body_speaks(store)
        store.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_member_has_everything_again_from_another(seed: int) -> None:
    story = told(seed)
    store = story.start(alone=False)
    story.no_body_speaks(store)
    story.heal()
    story.no_body_speaks(store)
    assert not store.damaged
    leader = story.leader.store
    assert store.log_end == leader.log_end
    assert log_bytes(store, 0, store.log_end) == log_bytes(leader, 0, leader.log_end)
    assert store.queue_range("T", 0) == leader.queue_range("T", 0)
