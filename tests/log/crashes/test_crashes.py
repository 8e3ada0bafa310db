"""A crash at every write, sync and change of names of a recorded run loses nothing it may not."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from imago_testing.searching import IS_SHORT
from imago_testing.stores.in_memory import FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log import MessageStore


LIMITS = {"retention_bytes": 5 * 4096}


SEEDS = int(os.environ.get("CRASH_SEEDS", "1" if IS_SHORT else "2"))
"""How many recorded runs are crashed everywhere; each takes seconds, so more are asked for."""
STRIDE = 3 if IS_SHORT else 1
"""A run is crashed at every place, or at every third."""

pytestmark = [pytest.mark.simulation]


class Recording:
    """Runs a script on a store, and looks at every crash on the way."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = FakeClock()
        self.vfs = MemoryVfs()
        self.model = Model()
        self.written_end = 0
        self.durable_end = 0
        self.changes: list[tuple[str, int, bool]] = []
        """Topic, log offset behind the record that changed it, whether it exists since."""
        self.changing = ""
        self.images = 0
        self.begun: set[Path] = set()
        """Files whose beginning was crashed."""
        self.busy = False

    def run(self, steps: int) -> None:
        self.vfs.before_call = self.crash_here
        store = self.open()
        for topic in ("A", "B"):
            self.create(store, topic)
        for _ in range(steps):
            store = self.step(store)
            self.note(store)
        store.close()

    def create(self, store: MessageStore, topic: str) -> None:
        self.changing = topic
        store.create_topic(topic, {"name": topic})
        self.changes.append((topic, store.log_end, True))
        self.note(store)
        self.changing = ""

    def delete(self, store: MessageStore, topic: str) -> None:
        self.changing = topic
        store.delete_topic(topic)
        self.changes.append((topic, store.log_end, False))
        self.note(store)
        self.changing = ""

    def open(self) -> MessageStore:
        store = open_store(self.vfs, self.clock, **LIMITS)
        store.on_durable.add(self.durable)
        return store

    def durable(self, end: int) -> None:
        self.durable_end = max(self.durable_end, end)

    def note(self, store: MessageStore) -> None:
        self.written_end = store.log_end
        self.durable_end = max(self.durable_end, store.durable_end)

    def step(self, store: MessageStore) -> MessageStore:
        rng = self.rng
        what = rng.random()
        if what < 0.55:
            count = rng.choice((1, 2, 6))
            where = [(rng.choice("AB"), rng.randrange(2), rng.randrange(300)) for _ in range(count)]
            self.model.send(store, where)
        elif what < 0.70:
            store.request_sync()
        elif what < 0.90:
            self.clock.now_ms += rng.choice((5, 300, 4000))
            store.tick()
        elif what < 0.94:
            store.put_meta([("offset", f"g{rng.randrange(3)}", rng.randrange(1000))])
        elif what < 0.96:
            store.set_materialised(rng.choice("AB"))
        elif what < 0.97:
            topic = rng.choice("AB")
            self.delete(store, topic)
            self.create(store, topic)
        else:
            store.close(clean=rng.random() < 0.5)
            store = self.open()
        return store

    def crash_here(self, what: str, path: Path) -> None:
        """Start the store from what a crash just before this call leaves."""
        if self.busy:
            return
        self.busy = True
        self.images += 1
        if path not in self.vfs.names_now:
            self.begun.add(path)
        seed = self.images
        if seed % STRIDE:
            self.busy = False
            return
        try:
            self.after_kill(self.vfs.crashed(power_loss=False, rng=Random(seed)))
            self.after_power_loss(self.vfs.crashed(power_loss=True))
            self.after_power_loss(self.vfs.crashed(power_loss=True, rng=Random(seed)))
        except Exception as error:
            error.add_note(f"crash {seed} before {what} of {path}")
            raise
        finally:
            self.busy = False

    def after_kill(self, vfs: MemoryVfs) -> None:
        self.look(vfs, self.written_end)

    def after_power_loss(self, vfs: MemoryVfs) -> None:
        self.look(vfs, self.durable_end)

    def look(self, vfs: MemoryVfs, safe_end: int) -> None:
        """What ends below `safe_end` is there; more may be, but only as a prefix."""
        store = open_store(vfs, self.clock, **LIMITS)
        assert store.log_end >= safe_end
        model = Model(list(self.model.sent), self.model.serial + 1000, list(self.model.in_flight))
        model.cut(store.log_end)
        for topic in ("A", "B"):
            self.check_topic(store, model, topic)
        model.adopt(store)
        model.check(store)
        for topic in ("A", "B"):
            if topic in store.topics():
                model.send(store, [(topic, 1, 50), (topic, 0, 120)])
        model.check(store)
        store.close()
        store = open_store(vfs, self.clock, **LIMITS)
        model.check(store)
        store.close()

    def check_topic(self, store: MessageStore, model: Model, topic: str) -> None:
        """The topic is as its last change that is in the log left it, with its own messages."""
        changes = [c for c in self.changes if c[0] == topic and c[1] <= store.log_end]
        exists = topic in store.topics()
        assert topic == self.changing or exists == bool(changes and changes[-1][2])
        birth = max((end for _, end, created in changes if created), default=0)
        model.sent = [
            sent for sent in model.sent if sent.topic != topic or (exists and sent.place >= birth)
        ]


class RollingRecording(Recording):
    """Fills files of the log and of MetaQ, one after the other."""

    def create(self, store: MessageStore, topic: str) -> None:
        super().create(store, topic)
        store.set_materialised(topic)
        self.note(store)

    def step(self, store: MessageStore) -> MessageStore:
        rng = self.rng
        count = rng.choice((2, 6))
        self.model.send(
            store,
            [(rng.choice("AB"), rng.randrange(2), rng.choice((3, 250))) for _ in range(count)],
            whole=rng.random() < 0.5,
        )
        if rng.random() < 0.3:
            store.request_sync()
        self.clock.now_ms += 300
        store.tick()
        return store


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.full
def test_every_roll_of_a_file_may_be_interrupted(seed: int) -> None:
    recording = RollingRecording(seed)
    recording.run(12)
    begun = recording.begun
    assert len([path for path in begun if path.parent.name == "commitlog"]) >= 5
    assert len([path for path in begun if path.suffix == ".meta"]) >= 9


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_crash_keeps_what_was_acknowledged(seed: int) -> None:
    recording = Recording(seed)
    recording.run(40)
    assert recording.images > 100
