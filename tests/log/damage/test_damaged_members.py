"""A stopped member's files are damaged in every way: it comes back, and holds what it held."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.replication.leader.buffer_pool import Lender
from imago_broker.replication.repair import PAUSE_MS, Repairs
from imago_log import CorruptLogError, CorruptRecordError
from imago_testing.searching import examples
from imago_testing.stores.damaging import harm_log, harm_note, harm_view, log_files, lose_log
from imago_testing.stores.in_memory import DATA, FakeClock, Model
from imago_testing.stores.members import Member, differences, views
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log import MessageStore

SEEDS = [*range(examples(36)), 418, 669, 809, 970, 1276, 1288, 2316, 2759]
"""The later ones each found something of their own."""
DUAL, PLAIN, LATE, KEPT = "dual", "plain", "late", "kept"
VALUES: dict[str, dict[str, Any]] = {
    DUAL: {"name": DUAL},
    PLAIN: {"name": PLAIN, "attributes": {"dialects": "rocketmq"}},
    LATE: {"name": LATE},
    KEPT: {"name": KEPT, "attributes": {"materialised": "true"}},
}
KEYS = ["k0", "k3"]
FRAMES = (300, 1000, 4000, 1 << 20)
ROUNDS_MAX = 200
"""Of a tick each; a missing file comes back in pieces of one record at worst."""


class Asked:
    """A member that others ask for what is damaged at theirs."""

    def __init__(self, store: MessageStore, repairs: Repairs, now: Callable[[], int]) -> None:
        self._lender, self._repairs, self._now = Lender(store), repairs, now
        self.answers: list[tuple[int, bytes]] = []

    def ask_repair(self, offset: int, size: int) -> None:
        self.answers.append((offset, bytes(self._lender.lend(offset, size))))

    def answer(self) -> None:
        answers, self.answers = self.answers, []
        for offset, data in answers:
            self._repairs.answered(self, offset, memoryview(data), self._now())


def _watermark(store: MessageStore) -> int:
    return store.high_watermark


class Shard:
    """Three members on file systems in memory; all that happens comes out of the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.story: list[str] = []
        self.limits = {"scrub_interval_ms": 20_000, "metaq_segment_bytes_max": 700}
        if self.rng.random() < 0.5:
            self.limits["retention_bytes"] = self.rng.choice([4, 8]) * 4096
        self.members = [Member.start(MemoryVfs(), self.clock, **self.limits) for _ in range(3)]
        self.away: set[int] = set()
        self.leads, self.epoch = 0, 0
        self.model = Model()
        self.lead(0)

    @property
    def leader(self) -> MessageStore:
        return self.members[self.leads].store

    def others(self) -> list[Member]:
        return [
            member
            for who, member in enumerate(self.members)
            if who != self.leads and who not in self.away
        ]

    def lead(self, who: int) -> None:
        self.story.append(f"{who} leads")
        self.epoch += 1
        if self.leads not in self.away and self.leader.leading:
            self.leader.follow(self.epoch - 1)
        self.leads = who
        self.members[who].store.lead(self.epoch)
        for member in self.others():
            member.join(self.leader)

    # What happens

    def traffic(self, count: int) -> None:
        for _ in range(count):
            self.step()
            if self.rng.random() < 0.3:
                self.copy()
            if self.rng.random() < 0.15:
                self.tick()
        self.copy()

    def step(self) -> None:
        rng, known = self.rng, list(self.leader.topics())
        chance = rng.random()
        if not known or chance < 0.1:
            self.leader.create_topic(name := rng.choice(list(VALUES)), VALUES[name])
        elif chance < 0.13:
            self.leader.delete_topic(rng.choice(known))
        elif chance < 0.25:
            self.leader.put_meta([("offset", rng.choice("abc"), rng.randrange(1000))])
        else:
            where = [
                (rng.choice(known), rng.randrange(3), rng.choice([5, 60, 300, 400]))
                for _ in range(rng.randrange(1, 8))
            ]
            self.model.send(self.leader, where)

    def copy(self) -> None:
        """Let who is there copy what the leader has; all of it is committed then."""
        for member in self.others():
            self.catch_up(member, self.rng.choice(FRAMES))
        self.commit()

    def catch_up(self, member: Member, frame_bytes: int) -> None:
        if member.store.log_end < self.leader.log_start:
            member.join(self.leader)
        try:
            member.catch_up(self.leader, frame_bytes)
        except (CorruptLogError, CorruptRecordError):
            # What the leader sends is damaged there: it is told, and asks others for it.
            self.leader.verify(member.store.log_end, self.leader.log_end)
            assert self.leader.damaged
            member.unread = b""

    def commit(self) -> None:
        ends = [member.store.log_end for member in self.others()]
        end = min([self.leader.log_end, *ends])
        for store in (self.leader, *(member.store for member in self.others())):
            store.set_high_watermark(end)

    def tick(self) -> None:
        self.clock.now_ms += self.rng.choice([10, 1000, 4000])
        for who, member in enumerate(self.members):
            if who not in self.away:
                if self.rng.random() < 0.5:
                    member.store.request_sync()
                member.store.tick()

    # Damage

    def stop(self, who: int) -> MemoryVfs:
        """Stop a member in some way; what it leaves."""
        member, how = self.members[who], self.rng.choice(["clean", "killed", "power lost"])
        if who == self.leads and self.rng.random() < 0.5:
            for _ in range(self.rng.randrange(6)):
                self.step()  # which nobody copies: it is cut off, unless it is damaged as well
        self.story.append(f"{who} stops, {how}")
        left = member.vfs
        if how != "clean":
            left = left.crashed(power_loss=how == "power lost", rng=self.rng)
        member.store.close(clean=how == "clean")
        self.away.add(who)
        if who == self.leads:
            self.lead(self.rng.choice([at for at in range(3) if at not in self.away]))
        return left

    def harm(self, vfs: MemoryVfs) -> None:
        kinds = [harm_log] * 8 + [harm_view] * 4 + [harm_note] * 4 + [lose_log]
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            kind = self.rng.choice(kinds)
            self.story.append(kind(vfs, self.rng))

    def start(self, who: int, vfs: MemoryVfs) -> None:
        self.members[who] = member = Member.start(vfs, self.clock, **self.limits)
        self.away.discard(who)
        found = [f"{each.start}-{each.end}" for each in member.store.damaged_ranges()]
        self.story.append(f"{who} starts, damaged {found}")
        member.join(self.leader)

    def harm_at_rest(self) -> None:
        """Flip bits in the log of the running leader, where only a look at the files finds it."""
        vfs = self.members[self.leads].vfs
        path = self.rng.choice([path for path in log_files(vfs) if any(vfs.content(path))])
        place = self.rng.randrange(len(vfs.content(path).rstrip(b"\0")))
        vfs.flip_bit(path, place, self.rng.randrange(8))
        self.story.append(f"leader's {path.name}: bit flipped at {place}")

    def heal(self) -> None:
        """Have members ask until nothing is damaged; one that wants it makes its views again."""
        self.ask()
        for who, member in enumerate(self.members):
            if not member.vfs.exists(DATA / "config" / "views"):
                self.start(who, self.stop(who))
                self.ask()

    def ask(self) -> None:
        """Have each member ask others while more is written, until nothing is damaged."""
        repairs = [
            Repairs(store.damaged_ranges, store.heal, partial(_watermark, store))
            for store in self.stores
        ]
        passes = [store.components.scrubber.counts.passes for store in self.stores]
        for at in range(ROUNDS_MAX):
            if at < 5:
                self.step()
            self.copy()
            self.clock.now_ms += PAUSE_MS
            self.tick()
            for who, asking in enumerate(repairs):
                self.let_ask(who, asking)
            for store in self.stores:
                store.request_sync()
            # The last pass has looked at what the first ones, or the healing, have changed.
            looked = all(
                store.components.scrubber.counts.passes >= before + 3
                for store, before in zip(self.stores, passes, strict=True)
            )
            if looked and not any(store.damaged for store in self.stores):
                return
        ranges = [store.damaged_ranges() for store in self.stores]
        raise AssertionError(f"damaged for good: {ranges}")

    def let_ask(self, who: int, repairs: Repairs) -> None:
        """A follower asks the leader, the leader all who follow."""
        others = [at for at in range(3) if at != who and (who == self.leads or at == self.leads)]
        asked = [Asked(self.members[at].store, repairs, lambda: self.clock.now_ms) for at in others]
        repairs.tick(self.clock.now_ms, asked)
        while any(each.answers for each in asked):
            for each in asked:
                each.answer()

    @property
    def stores(self) -> list[MessageStore]:
        return [member.store for member in self.members]

    # What must hold

    def all_hold_the_same(self) -> None:
        self.copy()
        known = views(self.leader, KEYS)
        for who, member in enumerate(self.members):
            with suppress(AssertionError):
                views(member.store, KEYS)  # the first reader of an expired unit has to go on
            found = views(member.store, KEYS)
            if member.store.log_start == self.leader.log_start:
                assert differences(found, known) == {}, f"member {who}"

    def each_leads_once(self) -> None:
        for who in (1, 2, 0):
            self.lead(who)
            self.traffic(3)
            self.all_hold_the_same()


def run(seed: int) -> None:
    shard = Shard(seed)
    try:
        tell(shard)
    except Exception as error:
        error.add_note(f"seed {seed}: " + "; ".join(shard.story))
        raise


def tell(shard: Shard) -> None:
    rng = shard.rng
    shard.traffic(rng.randrange(5, 40))
    for _ in range(rng.choice([1, 1, 2])):
        victims = rng.sample(range(3), rng.choice([1, 1, 1, 2]))
        left = {who: shard.stop(who) for who in victims}
        shard.traffic(rng.choice([0, 0, 3, 10]))
        for who, vfs in left.items():
            shard.harm(vfs)
            shard.start(who, vfs)
        if len(victims) == 1 and rng.random() < 0.3:
            shard.harm_at_rest()
        shard.heal()
        shard.all_hold_the_same()
    shard.each_leads_once()
    for member in shard.members:
        member.store.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_member_that_was_damaged_holds_everything_again(seed: int) -> None:
    run(seed)
