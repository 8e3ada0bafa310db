"""The metadata snapshot is of one log offset, however late and in how many pieces it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from imago_log.metadata import image as metadata_image
from imago_log.metadata.changes import TOPIC_KIND
from imago_log.metadata.state import Metadata
from imago_testing.stores.in_memory import DATA, FakeClock, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.crc import crc31
from imago_wire.record_format.sequences import Sequence

if TYPE_CHECKING:
    from collections.abc import Callable

P, Q = "00000000000000aa", "00000000000000bb"
names = st.sampled_from(["a", "b", "c", "d"])
topic_values = st.fixed_dictionaries({"n": st.integers(0, 3)})
topics = st.tuples(
    st.just(TOPIC_KIND),
    names,
    st.none()
    | st.fixed_dictionaries(
        {
            "incarnation": st.integers(1, 3),
            "birth": st.none() | st.integers(0, 9),
            "dual": st.booleans(),
            "value": topic_values,
        }
    ),
)
others = st.tuples(
    st.sampled_from(["group", "offset", "queue"]),
    names.map(lambda name: f"{name}/0"),
    st.none() | st.integers(0, 99) | st.lists(st.integers(0, 9), max_size=2),
)
numbered = st.tuples(st.just("sent"), st.sampled_from([P, Q]), st.tuples(names, st.booleans()))
steps = st.lists(topics | others | numbered, max_size=40)


def take(metadata: Metadata, step: tuple[str, str, Any], place: int) -> None:
    """Let one change, or one message of an idempotent producer, come at a log offset."""
    kind, key, value = step
    if kind != "sent":
        metadata.apply([step], place)
        return
    name, again = value
    queue, epoch = (name, 0), metadata.producers.epoch(key) or 0
    if again:
        epoch += 1
    number = metadata.producers.next_number(key, queue) or 0
    metadata.producers.add(Sequence(key, epoch, 0 if again else number), queue, place, place, place)


def in_one_go(metadata: Metadata, end: int) -> bytes:
    """Return the snapshot's file out of the tables as they are now, in one piece."""
    changes: list[Any] = []
    for name, topic in metadata.topics.items():
        fixed = {"incarnation": topic.incarnation, "birth": topic.birth, "dual": topic.dual}
        changes.append([TOPIC_KIND, name, fixed | {"value": topic.value}])
    for kind, values in metadata.values.items():
        changes += [[kind, key, value] for key, value in values.items()]
    content = {"format": 1, "end": end, "restated": metadata.restated, "changes": changes}
    if len(metadata.producers):
        content["producers"] = metadata.producers.to_json()
    data = orjson.dumps(content)
    return b"%010d\n%b\n" % (crc31(data), data)


@given(before=steps, after=steps, piece=st.integers(1, 4), cut=st.booleans())
def test_an_image_is_the_snapshot_of_its_moment(
    before: list[Any], after: list[Any], piece: int, cut: bool
) -> None:
    metadata = Metadata()
    for place, step in enumerate(before):
        take(metadata, step, place)
    expected = in_one_go(metadata, len(before))
    image = metadata.image(len(before))
    left = list(enumerate(after, len(before)))

    def change() -> None:
        """What the log says goes on between two pieces."""
        if left:
            place, step = left.pop(0)
            take(metadata, step, place)

    change()
    if cut:
        metadata.producers.truncate(len(before) // 2, lambda _topic, _queue_id: 0)
    whole = metadata_image.PIECE
    metadata_image.PIECE = piece
    try:
        assert image.encode(change) == expected
    finally:
        metadata_image.PIECE = whole
    found = Metadata.from_snapshot(expected)
    assert in_one_go(found, found.end) == expected


def test_many_values_are_encoded_with_rests() -> None:
    metadata, rests = Metadata(), 0
    metadata.apply([("offset", str(number), number) for number in range(10_000)], 1)

    def rest() -> None:
        nonlocal rests
        rests += 1

    assert metadata.image(1).encode(rest) == in_one_go(metadata, 1)
    assert rests >= 10_000 // metadata_image.PIECE


def saved(vfs: MemoryVfs) -> Metadata:
    path = DATA / "config/metadata.json"
    fd = vfs.open(path)
    data = vfs.pread(fd, vfs.size(fd), 0)
    vfs.close(fd)
    return Metadata.from_snapshot(data)


def test_what_changes_before_the_worker_comes_is_not_in_the_snapshot() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store = open_store(vfs, clock, segment_bytes_max=1 << 20)
    for name in ("kept", "changed", "deleted"):
        store.create_topic(name, {"n": 1})
    store.put_meta([("offset", "g@kept@0", 7)])
    jobs: list[Callable[[], None]] = []
    background: Any = store.components.storage.background
    background.submit_waiting = jobs.append  # a slow worker
    clock.now_ms += 10_000
    store.tick()
    end = store.log_end
    store.create_topic("changed", {"n": 2})
    store.create_topic("later", {"n": 1})
    store.delete_topic("deleted")
    store.put_meta([("offset", "g@kept@0", 8)])
    for job in jobs:
        job()
    found = saved(vfs)
    assert found.end == end
    assert found.public == {"kept": {"n": 1}, "changed": {"n": 1}, "deleted": {"n": 1}}
    assert found.kind("offset") == {"g@kept@0": 7}
    store.request_sync()
    again = open_store(vfs.crashed(power_loss=True), clock, segment_bytes_max=1 << 20)
    assert dict(again.topics()) == {"kept": {"n": 1}, "changed": {"n": 2}, "later": {"n": 1}}
    assert again.meta("offset") == {"g@kept@0": 8}
    for each in (again, store):
        each.close(clean=False)
