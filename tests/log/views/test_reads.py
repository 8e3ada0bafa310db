"""What a read answers at, below, above and between the messages of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_log import MessageStore, MetaqStatus, ReadStatus
from imago_log.views.queues import queues
from imago_testing.stores.in_memory import FakeClock, Model, metaq_bytes, open_store, split_records
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.record_format.tags import tag_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Iterator[MessageStore]:
    opened = open_store(MemoryVfs(), clock, retention_bytes=3 * 4096)
    opened.create_topic("T", {})
    yield opened
    opened.close()


def fill(store: MessageStore, count: int, size: int = 100) -> Model:
    model = Model()
    for _ in range(count):
        model.send(store, [("T", 0, size)])
    return model


def status(
    store: MessageStore, offset: int, *, messages_max: int = 32, bytes_max: int = 4000
) -> tuple[ReadStatus, int]:
    result = store.read("T", 0, offset, messages_max=messages_max, bytes_max=bytes_max)
    return result.status, result.next_offset


def test_queue_that_was_never_made(store: MessageStore) -> None:
    assert status(store, 7) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    assert store.read("unknown", 0, 0, messages_max=1, bytes_max=1).max_offset == 0


def test_queue_without_messages(store: MessageStore) -> None:
    store.tail("T", 0)
    assert status(store, 7) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_who_asks_for_all_queues_of_a_topic_has_the_disk_looked_at_once(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def counted(name: str) -> Callable[[MemoryVfs, Path], object]:
        real: Callable[[MemoryVfs, Path], object] = getattr(MemoryVfs, name)

        def look(vfs: MemoryVfs, path: Path) -> object:
            looks.append(name)
            return real(vfs, path)

        return look

    for name in ("names", "exists"):
        monkeypatch.setattr(MemoryVfs, name, counted(name))
    assert {store.queue_range("T", number) for number in range(1000)} == {(0, 0)}
    assert len(looks) == 1


def test_queues_are_found_and_lost_whatever_was_asked_before(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of folders is true after a start, a deletion, and beyond its limit."""
    monkeypatch.setattr(queues, "LISTED_TOPICS_MAX", 2)
    vfs, topics = MemoryVfs(), ["A", "B", "C"]
    opened = open_store(vfs, clock)
    for topic in topics:
        opened.create_topic(topic, {})
        assert opened.queue_range(topic, 3) == (0, 0)
        Model().send(opened, [(topic, 3, 100)])
    opened.close()
    again = open_store(vfs, clock)
    for topic in topics * 2:
        assert [again.queue_range(topic, number) for number in (2, 3)] == [(0, 0), (0, 1)]
    again.delete_topic("B")
    again.create_topic("B", {})
    assert [again.queue_range(topic, 3)[1] for topic in topics] == [1, 0, 1]
    Model().send(again, [("B", 3, 100)])
    assert again.queue_range("B", 3) == (0, 1)
    again.close()


def test_queues_of_a_topic_are_those_made_now_and_those_on_disk(clock: FakeClock) -> None:
    vfs = MemoryVfs()
    opened = open_store(vfs, clock)
    for topic in ("T", "T2"):
        opened.create_topic(topic, {})
        Model().send(opened, [(topic, 10, 100), (topic, 9, 100)])
    opened.close()
    again = open_store(vfs, clock)
    assert again.queues("T") == [9, 10]
    again.tail("T", 2)
    assert again.queues("T") == [2, 9, 10]
    assert again.queues("unknown") == []
    again.delete_topic("T")
    assert again.queues("T") == []
    again.close()


def test_offsets_around_the_end(store: MessageStore) -> None:
    fill(store, 3)
    assert status(store, 3) == (ReadStatus.OFFSET_OVERFLOW_ONE, 3)
    assert status(store, 4) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 3)
    assert status(store, 1 << 60) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 3)
    assert status(store, 2) == (ReadStatus.FOUND, 3)


def test_offset_below_what_retention_left(store: MessageStore, clock: FakeClock) -> None:
    fill(store, 100)
    retain(store, clock)
    low, _ = store.queue_range("T", 0)
    assert low > 0
    assert status(store, 0) == (ReadStatus.OFFSET_TOO_SMALL, low)
    assert status(store, low - 1) == (ReadStatus.OFFSET_TOO_SMALL, low)
    assert status(store, low, messages_max=1) == (ReadStatus.FOUND, low + 1)


def retain(store: MessageStore, clock: FakeClock) -> None:
    for _ in range(4):
        clock.now_ms += 4000
        store.tick()


def test_one_message_is_returned_however_large(store: MessageStore) -> None:
    fill(store, 2, 900)
    assert status(store, 0, bytes_max=1) == (ReadStatus.FOUND, 1)
    assert status(store, 0, messages_max=0) == (ReadStatus.FOUND, 1)


def test_limits_hold(store: MessageStore) -> None:
    fill(store, 10)
    assert status(store, 0, messages_max=4) == (ReadStatus.FOUND, 4)
    size = len(store.read("T", 0, 0, messages_max=1, bytes_max=1).body)
    result = store.read("T", 0, 0, messages_max=32, bytes_max=3 * size + 1)
    assert (result.count, len(result.body)) == (3, 3 * size)


def test_messages_of_other_queues_between(store: MessageStore) -> None:
    model = Model()
    for _ in range(6):
        model.send(store, [("T", 0, 50), ("T", 1, 60), ("T", 0, 70)])
    result = store.read("T", 0, 1, messages_max=9, bytes_max=1 << 20)
    assert [r.queue_offset for r in split_records(result.body)] == list(range(1, 10))
    model.check(store)


@pytest.mark.shipped_limits
def test_filtered_messages_are_skipped_for_good(store: MessageStore) -> None:
    fill(store, 6)  # tags t1, t2, t0, t1, …
    wanted = frozenset({tag_code(b"t0")})
    result = store.read("T", 0, 0, messages_max=1, bytes_max=4000, tags=wanted)
    assert (result.status, result.count) == (ReadStatus.FOUND, 1)
    assert split_records(result.body)[0].queue_offset == 2
    nothing = frozenset({tag_code(b"other")})
    result = store.read("T", 0, 0, messages_max=1, bytes_max=4000, tags=nothing)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 6)


@pytest.mark.shipped_limits
def test_one_filtered_read_looks_at_a_bounded_number_of_units() -> None:
    store = open_store(MemoryVfs(), segment_bytes_max=1 << 20)
    store.create_topic("T", {})
    Model().send(store, [("T", 0, 1)] * 1000)
    nothing = frozenset({tag_code(b"other")})
    result = store.read("T", 0, 0, messages_max=32, bytes_max=4000, tags=nothing)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 800)
    store.close()


def test_only_what_is_below_the_watermark_is_visible(store: MessageStore) -> None:
    model = fill(store, 5)
    store.set_high_watermark(model.sent[2].end)
    assert store.queue_range("T", 0) == (0, 3)
    assert status(store, 0) == (ReadStatus.FOUND, 3)
    assert status(store, 3) == (ReadStatus.OFFSET_OVERFLOW_ONE, 3)
    assert store.position_range("T", 0)[1] == model.sent[3].position
    store.set_high_watermark(0)
    assert store.queue_range("T", 0) == (0, 3), "it never goes back"


def test_positions_around_the_ends(store: MessageStore) -> None:
    model = fill(store, 3)
    _, end = store.position_range("T", 0)
    assert store.read_positions("T", 0, end, 100).status is MetaqStatus.AT_END
    assert store.read_positions("T", 0, end + 1, 100).status is MetaqStatus.BEYOND_END
    assert store.read_positions("T", 1, 0, 100).status is MetaqStatus.NO_QUEUE
    assert store.read_positions("none", 0, 0, 100).status is MetaqStatus.NO_QUEUE
    inside = store.read_positions("T", 0, 1, 1000)
    assert inside.position == model.sent[1].position
    in_the_last = store.read_positions("T", 0, end - 1, 1000)
    assert in_the_last.status is MetaqStatus.AT_END


def test_position_below_what_retention_left(store: MessageStore, clock: FakeClock) -> None:
    fill(store, 100)
    retain(store, clock)
    low, _ = store.position_range("T", 0)
    assert low > 0
    read = store.read_positions("T", 0, low - 1, 100)
    assert (read.status, read.position) == (MetaqStatus.TOO_SMALL, low)


@pytest.mark.parametrize("materialised", [False, True])
def test_a_read_has_as_many_bytes_as_were_asked_for(*, materialised: bool) -> None:
    store = open_store(MemoryVfs())
    store.create_topic("T", {})
    if materialised:
        store.set_materialised("T")
    model = fill(store, 6, 100)
    store.tick()
    end = store.position_range("T", 0)[1]
    whole = b"".join(
        metaq_bytes(store.read_positions("T", 0, sent.position, 1000).data)[: end // 6]
        for sent in model.sent
    )
    assert len(whole) == end
    for sent in model.sent:
        for size in (1, 19, 20, 21, 25, end // 6, end // 6 + 1, 300, end, 1 << 20):
            read = store.read_positions("T", 0, sent.position, size)
            expected = whole[sent.position : sent.position + size]
            found = metaq_bytes(read.data)
            assert found == expected[: len(found)]
            # A file of its own ends between two messages, as the original's.
            assert len(found) == len(expected) or sent.position + len(found) in starts(store)
    store.close()


def starts(store: MessageStore) -> list[int]:
    """Return where the files of partition 0 begin."""
    segments = store.components.storage.materialiser.get("T", 0)
    return [] if segments is None else segments.starts()


def test_a_large_read_of_small_messages_goes_over_many_reads_of_units(store: MessageStore) -> None:
    model = fill(store, 6000, 0)
    size = model.sent[5999].position + 7
    read = store.read_positions("T", 0, 0, size)
    assert len(metaq_bytes(read.data)) == size


def test_offsets_and_positions_are_one_list(store: MessageStore) -> None:
    model = fill(store, 8, 30)
    end = store.position_range("T", 0)[1]
    for sent in model.sent:
        assert store.position_of("T", 0, sent.offset) == sent.position
        assert store.offset_of("T", 0, sent.position) == sent.offset
        assert store.offset_of("T", 0, sent.position - 1) == sent.offset
    assert store.position_of("T", 0, 8) == store.position_of("T", 0, 99) == end
    assert store.offset_of("T", 0, end) == store.offset_of("T", 0, end + 5) == 8


def test_topic_without_positions() -> None:
    store = open_store(MemoryVfs())
    store.create_topic("T", {"attributes": {"dialects": "rocketmq"}})
    fill(store, 2)
    assert store.position_range("T", 0) == (0, 0)
    assert store.read_positions("T", 0, 0, 100).status is MetaqStatus.NO_QUEUE
    with pytest.raises(ValueError, match="no MetaQ positions"):
        store.set_materialised("T")
    store.close()
