"""Views are made from the log: whichever is removed by hand comes back as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_log import DeadQueueError
from imago_testing.stores.in_memory import DATA, FakeClock, Model, open_store
from imago_testing.stores.members import open_member
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from pathlib import Path

VALUE = {"name": "T", "read_queues": 4}


def a_used_folder(*, clean: bool) -> tuple[MemoryVfs, Model]:
    """Queues, keys, MetaQ files and metadata, partly behind a checkpoint."""
    vfs, clock, model = MemoryVfs(), FakeClock(), Model()
    store = open_store(vfs, clock)
    store.create_topic("T", VALUE)
    store.set_materialised("T")
    store.create_topic("P", {"attributes": {"dialects": "rocketmq"}})
    for _ in range(30):
        model.send(store, [("T", 0, 100), ("T", 1, 50), ("P", 0, 20)])
    store.put_meta([("offset", "group", 7)])
    for _ in range(8):
        clock.now_ms += 1000
        store.tick()
    for _ in range(3):
        model.send(store, [("T", 0, 100), ("T", 1, 50), ("P", 0, 20)])
    left = vfs if clean else vfs.crashed(power_loss=False)
    store.close(clean=clean)
    return left, model


def remove(vfs: MemoryVfs, name: str) -> None:
    path = DATA / name
    assert vfs.exists(path)
    if vfs.is_folder(path):
        vfs.remove_folder(path)
    else:
        vfs.unlink(path)


REMOVABLE = [
    "consumequeue",
    "consumequeue_v",
    "index",
    "metaq",
    "metaq/T-0",
    "config",
    "config/metadata.json",
    "checkpoint",
]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("name", REMOVABLE)
def test_removed_view_is_made_again(name: str, *, clean: bool) -> None:
    vfs, model = a_used_folder(clean=clean)
    remove(vfs, name)
    for _ in range(2):
        store = open_store(vfs)
        assert store.topics()["T"]["read_queues"] == 4
        assert store.topics()["T"]["attributes"] == {"materialised": "true"}
        assert dict(store.meta("offset")) == {"group": 7}
        model.check(store)
        model.send(store, [("T", 0, 10), ("T", 1, 10), ("T", 2, 10), ("P", 0, 10)])
        model.check(store)
        store.close()


def test_everything_but_the_log_may_go() -> None:
    vfs, model = a_used_folder(clean=True)
    for path in vfs.files():
        if path.parent.name != "commitlog":
            vfs.unlink(path)
    store = open_store(vfs)
    model.check(store)
    model.send(store, [("T", 0, 10)])
    store.close()


def test_a_start_that_crashes_while_it_rebuilds_is_done_again() -> None:
    vfs, model = a_used_folder(clean=True)
    remove(vfs, "consumequeue")
    images: list[MemoryVfs] = []
    vfs.before_call = lambda *_: images.append(vfs.crashed(power_loss=False))
    open_store(vfs).close()
    assert len(images) > 20
    for image in images:
        store = open_store(image)
        model.check(store)
        store.close()


def test_queue_files_of_one_queue_that_are_gone_are_missed() -> None:
    """After a kill the log is read again, and does not fit what is left of the queue."""
    vfs, model = a_used_folder(clean=False)
    remove(vfs, "consumequeue/T/0")
    store = open_store(vfs)
    model.check(store)
    store.close()


def test_rebuilt_files_are_those_that_were_there() -> None:
    vfs, _ = a_used_folder(clean=True)
    names = ("consumequeue", "consumequeue_v", "index")
    before = {p: vfs.content(p).rstrip(b"\0") for p in vfs.files() if p.parts[2] in names}
    assert len(before) >= 6
    for name in names:
        remove(vfs, name)
    open_store(vfs).close()
    after = {p: vfs.content(p).rstrip(b"\0") for p in vfs.files() if p.parts[2] in names}
    meta = DATA / "consumequeue" / "IMAGO_META"
    assert {p: v for p, v in after.items() if meta not in p.parents} == {
        p: v for p, v in before.items() if meta not in p.parents
    }


def recreated(clean: bool) -> tuple[MemoryVfs, Model, dict[Path, bytes]]:
    """A topic deleted and created again; also the queue files of its first life."""
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", VALUE)
    for _ in range(5):
        model.send(store, [("T", 0, 50), ("T", 1, 50)])
    store.components.storage.queue_writer.write_all()
    roots = (DATA / "consumequeue" / "T", DATA / "consumequeue_v" / "T")
    old = {p: vfs.content(p) for p in vfs.files() if p.parent.parent in roots}
    assert len(old) == 4
    store.delete_topic("T")
    model.forget_topic("T")
    store.create_topic("T", VALUE)
    left = vfs if clean else vfs.crashed(power_loss=False)
    store.close(clean=clean)
    return left, model, old


def test_messages_of_a_deleted_topic_stay_gone_when_views_are_rebuilt() -> None:
    vfs, model, _ = recreated(clean=True)
    remove(vfs, "consumequeue")
    store = open_store(vfs)
    assert store.queue_range("T", 0) == store.queue_range("T", 1) == (0, 0)
    model.send(store, [("T", 1, 10)] * 3)
    remove(vfs, "config/views")
    store.close()
    store = open_store(vfs)
    model.check(store)
    assert store.queue_range("T", 1) == (0, 3)
    store.close()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_queue_files_of_a_deleted_topic_that_came_back_are_not_believed(clean: bool) -> None:
    """A power loss may undo the removal of files after the new topic of the name is durable."""
    vfs, model, old = recreated(clean=clean)
    for path, content in old.items():
        vfs.put(path, content)
    store = open_store(vfs)
    assert store.queue_range("T", 0) == store.queue_range("T", 1) == (0, 0)
    model.send(store, [("T", 1, 10)] * 3)
    assert store.queue_range("T", 1) == (0, 3)
    model.check(store)
    store.close()


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_v"])
def test_the_folder_of_one_queue_removed_by_hand_is_missed(folder: str) -> None:
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    for topic in ("T", "U"):
        store.create_topic(topic, {})
        model.send(store, [(topic, 0, 100), (topic, 1, 50)] * 5)
    store.close()
    vfs.remove_folder(DATA / folder / "U" / "1")
    store = open_store(vfs)
    model.check(store)
    store.close()
    store = open_store(vfs)
    model.check(store)
    store.close()


def test_nothing_is_appended_to_a_queue_whose_topic_was_deleted() -> None:
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", {})
    store.create_topic("U", {})
    dead, other = store.tail("T", 0), store.tail("U", 0)
    model.send(store, [("U", 0, 10)])
    entries = [
        make_entry(tail, b"x", born_ms=1, born_host=bytes(8)) for tail in (other, dead, other)
    ]
    store.append(entries[1:2])
    store.delete_topic("T")
    end = store.log_end
    for wanted in (entries, entries[1:2]):
        with pytest.raises(DeadQueueError, match="deleted"):
            store.append(wanted)
    assert store.log_end == end
    model.check(store)
    store.create_topic("T", {})
    with pytest.raises(DeadQueueError):
        store.append(entries)
    model.send(store, [("T", 0, 20), ("U", 0, 20)])
    model.check(store)
    store.close()


@pytest.mark.parametrize("lead", [True, False], ids=["alone", "member"])
def test_short_lives_read_again_only_what_the_last_ones_wrote(
    caplog: pytest.LogCaptureFixture, lead: bool
) -> None:
    """Every process is killed long before `view_sync_interval_ms` has passed."""
    vfs, clock, model = MemoryVfs(), FakeClock(), Model()
    caplog.set_level("INFO", "imago_log.lifecycle.opening")
    ends = []
    for life in range(6):
        opened = open_store if lead else open_member
        store = opened(vfs, clock, view_sync_interval_ms=60_000)
        if not lead:
            store.set_high_watermark(store.log_end)
            store.lead(life + 1)
        if not life:
            store.create_topic("T", VALUE)
        for _ in range(2):
            clock.now_ms += 1000
            model.send(store, [("T", 0, 100)] * 20)
            store.set_high_watermark(store.log_end)
            store.tick()
        ends.append(store.log_end)
        vfs = vfs.crashed(power_loss=False)
        store.close(clean=False)
    said = [record.getMessage() for record in caplog.records]
    starts = [int(line.split()[1].partition("=")[2]) for line in said if "=killed" in line]
    assert len(starts) == 5
    for start, before in zip(starts[1:], ends, strict=False):
        assert start >= before, "the life before the last one is read again"
    model.check(open_store(vfs, clock))


def test_a_topic_whose_creation_is_lost_gets_no_more_queues_than_topics_have() -> None:
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", VALUE)
    end = store.log_end
    model.send(store, [("T", 1, 50), ("T", 2**31 - 1, 50), ("T", 2, 50)])
    store.close()
    log = DATA / "commitlog" / f"{0:020d}"
    vfs.flip_bit(log, end - 60)  # of the topic's creation
    for name in ("views", "metadata.json"):
        vfs.unlink(DATA / "config" / name)
    store = open_store(vfs)
    assert store.damaged_ranges()
    assert store.topics()["T"]["read_queues"] == 3
    model.check(store)
    store.close()
