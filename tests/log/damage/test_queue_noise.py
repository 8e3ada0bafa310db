"""Noise in the files of a queue: no start believes it, and no message has an offset from it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from imago_testing.stores.in_memory import DATA, FakeClock, Model, open_store, whole_messages
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from imago_log import MessageStore

COUNT = 60
UNIT = {"consumequeue": 20, "consumequeue_v": 12}
STOPS = ["stopped", "killed", "power lost"]


def filled(stop: str) -> tuple[MemoryVfs, Model]:
    vfs, clock, model = MemoryVfs(), FakeClock(), Model()
    store = open_store(vfs, clock)
    store.create_topic("T", {})
    store.create_topic("U", {"attributes": {"dialects": "rocketmq"}})
    for _ in range(COUNT):
        model.send(store, [("T", 0, 20), ("U", 0, 20)])
    for _ in range(8):
        clock.now_ms += 1000
        store.tick()
    left = vfs if stop == "stopped" else vfs.crashed(power_loss=False)
    left.boot += stop == "power lost"
    store.close(clean=stop == "stopped")
    return left, model


def garble(vfs: MemoryVfs, root: str, topic: str, first: int, last: int, seed: int) -> None:
    """Overwrite units of a queue with noise."""
    (path,) = [p for p in vfs.files() if p.parent == DATA / root / topic / "0"]
    content = bytearray(vfs.content(path))
    content[first * UNIT[root] : last * UNIT[root]] = Random(seed).randbytes(
        (last - first) * UNIT[root]
    )
    vfs.put(path, bytes(content))


def goes_on(vfs: MemoryVfs, model: Model) -> None:
    """Nothing is missing, the next messages get the next offsets, and later starts agree."""
    for _ in range(2):
        store = open_store(vfs)
        assert [store.tail(topic, 0).next_offset for topic in ("T", "U")] == [
            len([sent for sent in model.sent if sent.topic == topic]) for topic in ("T", "U")
        ]
        model.send(store, [("T", 0, 20), ("U", 0, 20)])
        model.check(store)
        store.close()
    vfs.unlink(DATA / "config" / "views")
    store = open_store(vfs)
    model.check(store)
    store.close()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 4))]
)
@pytest.mark.parametrize("roots", [("consumequeue", "consumequeue_v"), ("consumequeue",)], ids=len)
@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 1000), (0, COUNT), (COUNT - 20, 300), (COUNT, COUNT + 1), (COUNT, 500), (70, 90)],
)
@pytest.mark.parametrize("stop", STOPS)
def test_noise_is_no_end(
    stop: str, first: int, last: int, roots: tuple[str, ...], seed: int
) -> None:
    vfs, model = filled(stop)
    for root in roots:
        for topic in ("T", "U"):
            if topic == "T" or root == "consumequeue":
                garble(vfs, root, topic, first, last, seed)
    goes_on(vfs, model)


@pytest.mark.parametrize("stop", STOPS)
def test_noise_in_the_last_position_is_no_end(stop: str) -> None:
    """MetaQ's positions of the next messages would be wrong in the log, for good."""
    vfs, model = filled(stop)
    garble(vfs, "consumequeue_v", "T", COUNT - 1, COUNT, 1)
    goes_on(vfs, model)


def with_gap(size: int) -> tuple[MemoryVfs, Model, MessageStore]:
    """A log as a broker left it that believed noise: its queue offsets go on elsewhere."""
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", {})
    model.send(store, [("T", 0, 20)] * 10)
    tail = store.tail("T", 0)
    tail.next_offset += size
    tail.next_position += size * 50
    model.send(store, [("T", 0, 20)] * 5)
    return vfs, model, store


def read_positions(store: MessageStore) -> int:
    """Count what a MetaQ client gets from the beginning to the end."""
    count, (position, end) = 0, store.position_range("T", 0)
    while position < end:
        found = store.read_positions("T", 0, position, 1 << 20)
        data = whole_messages(found.data)
        at = 0
        while at < len(data):
            at, count = at + 20 + int.from_bytes(data[at : at + 4], "big"), count + 1
        assert found.position + len(data) > position
        position = found.position + len(data)
    return count


@pytest.mark.parametrize("size", [1, 116, 5000])
@pytest.mark.parametrize("stop", STOPS)
def test_log_with_a_gap_of_offsets_starts(
    stop: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    vfs, model, store = with_gap(size)
    left = vfs.crashed(power_loss=False)
    store.close(clean=False)
    left.unlink(DATA / "config" / "views")
    for _ in range(3):
        store = open_store(left)
        assert store.queue_range("T", 0) == (0, len(model.sent) + size)
        count = offset = 0
        while offset < store.queue_range("T", 0)[1]:
            found = store.read("T", 0, offset, messages_max=32, bytes_max=1 << 20)
            count, offset = count + found.count, found.next_offset
        assert count == len(model.sent)
        assert read_positions(store) == len(model.sent)
        model.send(store, [("T", 0, 20)])
        left = left.crashed(power_loss=False) if stop == "killed" else left
        store.close(clean=stop == "stopped")
    assert f"queue.gap queue=b'T'/0 from=10 to={10 + size}" in caplog.text


def test_record_that_no_log_could_hold_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    vfs, _, store = with_gap(1 << 40)
    left = vfs.crashed(power_loss=False)
    store.close(clean=False)
    left.unlink(DATA / "config" / "views")
    store = open_store(left)
    assert store.queue_range("T", 0) == (0, 10)
    assert "queue.record-left-out queue=T/0 end=10" in caplog.text
    store.close()
