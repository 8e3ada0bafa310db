"""A crash at every write of a follower that takes, cuts, begins again and leads: it finds back."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import imago_log.composing
from imago_testing.searching import IS_SHORT
from imago_testing.stores.in_memory import FakeClock, Model
from imago_testing.stores.members import Member, differences, log_bytes, rebuilt, views
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_log import MessageStore

pytestmark = pytest.mark.simulation

LIMITS = {"retention_bytes": 4 * 4096}
SEEDS = int(os.environ.get("CRASH_SEEDS", "1" if IS_SHORT else "2"))
KEYS = ["k0", "k3"]


class LaterWorker:
    """Runs jobs when it is told to, so that they wait while the store goes on."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def drain(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    stop = drain

    def leave_to_others(self, share: float) -> None:
        """Nobody waits."""


class Recording:
    """One member whose every call to the file system is looked at, and another that only helps."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = FakeClock()
        self.model = Model()
        self.images = 0
        self.busy = True
        self.helper = Member.start(MemoryVfs(), self.clock, **LIMITS)
        self.member = Member.start(MemoryVfs(), self.clock, **LIMITS)
        self.member.vfs.before_call = self.crash_here
        self.epoch = 0
        self.leading = False
        self.promised = 0
        self.joined = False
        self.safe_end = 0
        """The log's end that a kill must not take back."""
        self.known = b""
        """Bytes of the member's log, from 0 or its start on, with what it is about to take."""
        self.start = 0
        self.ops: list[str] = []

    @property
    def leader(self) -> MessageStore:
        return self.member.store if self.leading else self.helper.store

    def run(self, steps: int) -> None:
        self.lead_helper()
        for topic in ("A", "B"):
            self.leader.create_topic(topic, {"name": topic})
        self.leader.set_materialised("A")
        self.busy = False
        for _ in range(steps):
            self.step()
        self.busy = True
        self.finish()

    # Steps

    def step(self) -> None:
        rng = self.rng
        acts: list[tuple[float, Callable[[], None]]] = [
            (6, self.send), (6, self.pull), (2, self.commit), (2, self.sync), (3, self.tick),
            (2, self.work), (5, self.switch), (2, self.topics), (1, self.fall_behind),
            (1, self.restart),
        ]  # fmt: skip
        (act,) = rng.choices([act for _, act in acts], [weight for weight, _ in acts])
        self.ops.append(act.__name__)
        act()
        self.note()

    def note(self) -> None:
        store = self.member.store
        self.safe_end, self.start = store.log_end, store.log_start
        self.known = log_bytes(store, store.log_start, store.log_end)

    def about_to(self, end: int, more: bytes = b"") -> None:
        """The next call may leave any log between `end` and what it has now and `more`."""
        self.safe_end = end
        self.known += more

    def send(self) -> None:
        rng = self.rng
        count = rng.choice((1, 3, 8))
        where = [(rng.choice("AB"), rng.randrange(2), rng.randrange(300)) for _ in range(count)]
        where = [place for place in where if place[0] in self.leader.topics()]
        if where:
            self.model.send(self.leader, where)
        self.leader.put_meta([("offset", f"g{rng.randrange(3)}", rng.randrange(1000))])

    def join(self) -> None:
        if self.leading or self.joined:
            return
        self.about_to(0)  # how far it is cut is for the epochs to say
        self.member.join(self.leader)
        self.promised, self.joined = self.epoch, True
        self.note()

    def pull(self) -> None:
        if self.leading:
            self.catch_up_helper()
            return
        self.join()
        if self.member.store.log_end < self.leader.log_start:
            self.joined = False
            self.join()
        for _ in range(self.rng.randrange(1, 5)):
            end = self.member.store.log_end
            self.about_to(end, log_bytes(self.leader, end, self.leader.log_end))
            self.member.pull(self.leader, self.rng.choice((1, 300, 3000, 9000)))
            self.note()

    def catch_up_helper(self) -> None:
        self.helper.join(self.leader)
        self.helper.catch_up(self.leader)

    def commit(self) -> None:
        """All that the follower has is committed."""
        if self.leading:
            self.catch_up_helper()
        elif not self.joined:
            return
        end = min(self.member.store.log_end, self.helper.store.log_end)
        for store in (self.helper.store, self.member.store):
            store.set_high_watermark(end)

    def sync(self) -> None:
        self.member.store.request_sync()

    def tick(self) -> None:
        self.clock.now_ms += self.rng.choice((5, 300, 4000))
        self.member.store.tick()

    def work(self) -> None:
        worker: Any = self.member.store.components.storage.background._worker
        for _ in range(self.rng.randrange(3)):
            if worker.jobs:
                worker.jobs.pop(0)()

    def switch(self) -> None:
        """The other one leads from now on; who led may have more than anybody else."""
        if self.leading:
            self.member.store.follow(self.epoch)
            self.lead_helper()
        elif self.joined and self.member.store.high_watermark >= self.committed():
            if self.member.store.needs_metadata:
                return
            self.helper.store.follow(self.epoch)
            self.epoch += 1
            self.member.store.lead(self.epoch)
            self.leading, self.promised = True, self.epoch

    def committed(self) -> int:
        return self.helper.store.high_watermark

    def lead_helper(self) -> None:
        self.epoch += 1
        self.helper.store.lead(self.epoch)
        self.leading = self.joined = False

    def topics(self) -> None:
        topic = self.rng.choice("AB")
        if topic in self.leader.topics() and self.rng.random() < 0.6:
            self.leader.delete_topic(topic)
        else:
            self.leader.create_topic(topic, {"name": topic})

    def fall_behind(self) -> None:
        """The helper goes on alone, until its log begins behind the member's end."""
        if self.leading:
            return
        self.joined = False
        store = self.helper.store
        for _ in range(8):
            for _ in range(5):
                self.send()
            store.set_high_watermark(store.log_end)
            self.clock.now_ms += 4000
            store.tick()
            store.components.storage.background.drain()
        assert store.log_start > self.member.store.log_end
        self.join()

    def restart(self) -> None:
        clean = self.rng.random() < 0.5
        self.member.store.close(clean=clean)
        self.member = Member.start(self.member.vfs, self.clock, **LIMITS)
        if self.leading:
            self.leading = False
            self.helper.store.follow(self.epoch)
            self.epoch += 1
            self.member.store.lead(self.epoch)
            self.leading, self.promised = True, self.epoch
        self.joined = False

    # Crashes

    def crash_here(self, what: str, path: Path) -> None:
        if self.busy:
            return
        self.busy = True
        self.images += 1
        seed = self.images
        durable_end = self.member.store.durable_end
        vfs = self.member.vfs
        try:
            self.look(vfs.crashed(power_loss=False, rng=Random(seed)), self.safe_end)
            self.look(vfs.crashed(power_loss=True), min(self.safe_end, durable_end))
            self.look(
                vfs.crashed(power_loss=True, rng=Random(seed)), min(self.safe_end, durable_end)
            )
        except BaseException as error:
            error.add_note(f"crash {seed} before {what} of {path} in {self.ops[-5:]}")
            raise
        finally:
            self.busy = False

    def look(self, vfs: MemoryVfs, safe_end: int) -> None:
        """What was there is there, nothing else, and it finds back to its leader."""
        member = Member.start(vfs, self.clock, **LIMITS)
        store = member.store
        assert store.damaged_ranges() == ()
        assert store.epoch_seen >= self.promised
        assert store.log_end >= safe_end
        if store.log_start >= self.start:
            found = log_bytes(store, store.log_start, store.log_end)
            at = store.log_start - self.start
            known = self.known[at:][: len(found)]
            assert found[: len(known)] == known
            assert len(found) == len(known) or self.leading
        if not self.leading and self.leader.epoch_seen >= store.epoch_seen:
            member.join(self.leader)
            member.catch_up(self.leader)
            store.set_high_watermark(store.log_end)
            self.compare(member)
        elif not store.needs_metadata:
            other = rebuilt(member, self.clock, **LIMITS)
            assert differences(views(store, KEYS), views(other, KEYS)) == {}
            other.close(clean=False)
        store.close(clean=False)

    def compare(self, member: Member) -> None:
        leader, store = self.leader, member.store
        start = max(store.log_start, leader.log_start)
        end = leader.log_end
        assert store.log_end == end
        assert log_bytes(store, start, end) == log_bytes(leader, start, end)
        assert dict(store.topics()) == dict(leader.topics())
        assert dict(store.meta("offset")) == dict(leader.meta("offset"))
        if self.images % 4 == 0 and not store.needs_metadata:
            other = rebuilt(member, self.clock, **LIMITS)
            assert differences(views(store, KEYS), views(other, KEYS)) == {}
            other.close(clean=False)

    def finish(self) -> None:
        self.joined = False
        if not self.leading:
            self.member.join(self.leader)
            self.member.catch_up(self.leader)
            self.compare(self.member)
        self.member.store.close()
        self.helper.store.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_member_finds_back_from_every_crash(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imago_log.composing, "InlineWorker", LaterWorker)
    recording = Recording(seed)
    recording.run(30)
    assert recording.images > 40
