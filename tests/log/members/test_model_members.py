"""Leaders and followers in any order of frames, cuts, crashes and elections."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from imago_testing.searching import examples
from imago_testing.stores.in_memory import FakeClock, Model
from imago_testing.stores.members import Member, common_end, differences, log_bytes, rebuilt, views
from imago_testing.stores.vfs import MemoryVfs

DUAL, PLAIN, LATE = "dual", "plain", "late"
VALUES: dict[str, dict[str, Any]] = {
    DUAL: {"name": DUAL},
    PLAIN: {"name": PLAIN, "attributes": {"dialects": "rocketmq"}},
    LATE: {"name": LATE},
}
LIMITS = {"retention_bytes": 5 * 4096}
KEYS = ["k0", "k3"]

topics = st.sampled_from([DUAL, PLAIN, LATE])
places = st.tuples(topics, st.integers(0, 2), st.integers(0, 400))
members = st.integers(0, 2)
frames = st.lists(st.integers(1, 5000), min_size=1, max_size=6)


class ShardMachine(RuleBasedStateMachine):
    """Three members; one leads. Whoever was cut off joins again before it takes anything."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.model = Model()
        self.members = [Member.start(MemoryVfs(), self.clock, **LIMITS) for _ in range(3)]
        self.epoch = 0
        self.leads = 0
        self.joined: set[int] = set()
        self.in_sync = {0}
        self.committed = 0
        """Log offset below which every member of the in-sync set has everything."""

    @property
    def leader(self) -> Any:
        return self.members[self.leads].store

    @initialize()
    def begin(self) -> None:
        self.elect(0)
        for topic in (DUAL, PLAIN):
            self.leader.create_topic(topic, VALUES[topic])

    def elect(self, who: int) -> None:
        self.epoch += 1
        self.leads = who
        self.members[who].store.lead(self.epoch)
        self.joined = set()
        self.model.sent.clear()

    def join(self, who: int) -> None:
        if who != self.leads and who not in self.joined:
            self.members[who].join(self.leader)
            self.joined.add(who)

    # What the leader does

    @rule(where=st.lists(places, min_size=1, max_size=12))
    def append(self, where: list[tuple[str, int, int]]) -> None:
        known = [place for place in where if place[0] in self.leader.topics()]
        if known:
            self.model.send(self.leader, known)

    @rule(key=st.sampled_from(["g1", "g2"]), value=st.none() | st.integers(0, 999))
    def put_meta(self, key: str, value: int | None) -> None:
        self.leader.put_meta([("offset", key, value)])

    @rule(topic=topics)
    def create(self, topic: str) -> None:
        self.leader.create_topic(topic, VALUES[topic])

    @rule(topic=topics)
    def delete(self, topic: str) -> None:
        if topic in self.leader.topics():
            self.leader.delete_topic(topic)

    @rule()
    def materialise(self) -> None:
        if DUAL in self.leader.topics():
            self.leader.set_materialised(DUAL)

    # What the members do

    @rule(who=members, sizes=frames)
    def pull(self, who: int, sizes: list[int]) -> None:
        if who == self.leads:
            return
        self.join(who)
        member = self.members[who]
        for size in sizes:
            if member.store.log_end < self.leader.log_start:
                self.joined.discard(who)
                self.join(who)
            member.pull(self.leader, size)

    @rule(who=members)
    def catch_up(self, who: int) -> None:
        if who != self.leads:
            self.joined.discard(who)
            self.join(who)
            self.members[who].catch_up(self.leader)

    @rule(in_sync=st.sets(members, max_size=2))
    def raise_high_watermark(self, in_sync: set[int]) -> None:
        """Let some be the in-sync set: those of them that have all that was committed."""
        caught_up = {who for who in in_sync & self.joined if self.end_of(who) >= self.committed}
        self.in_sync = caught_up | {self.leads}
        self.committed = max(self.committed, min(self.end_of(who) for who in self.in_sync))
        for who in self.in_sync:
            self.members[who].store.set_high_watermark(self.committed)

    def end_of(self, who: int) -> int:
        return self.members[who].store.log_end

    @rule(away=members, rounds=st.integers(1, 3))
    def go_on_without_one(self, away: int, rounds: int) -> None:
        """The others are in sync, much is written, old files go: who is away falls behind."""
        for _ in range(rounds):
            topic = DUAL if DUAL in self.leader.topics() else "IMAGO_META"
            if topic == DUAL:
                self.model.send(self.leader, [(DUAL, 1, 400)] * 14)
            others = set(range(3)) - {away, self.leads}
            for who in others:
                self.catch_up(who)
            self.raise_high_watermark(others)
            self.clock.now_ms += 4000
            for who in self.in_sync:
                self.members[who].store.tick()

    @rule(who=members, passed_ms=st.sampled_from([0, 5, 300, 4000]))
    def tick(self, who: int, passed_ms: int) -> None:
        self.clock.now_ms += passed_ms
        self.members[who].store.tick()

    @rule(who=members)
    def sync(self, who: int) -> None:
        store = self.members[who].store
        store.request_sync()
        assert store.durable_end == store.log_end

    @rule(who=members)
    def lead(self, who: int) -> None:
        """A member of the in-sync set is elected, with all that the others may not have yet."""
        if who in self.in_sync:
            self.members[self.leads].store.follow(self.epoch)
            self.elect(who)

    @rule(who=members, how=st.sampled_from(["clean", "killed", "power lost"]))
    def restart(self, who: int, how: str) -> None:
        member = self.members[who]
        left = member.vfs
        if who in self.in_sync:
            member.store.request_sync()  # else nobody may be left who has what was committed
        if how == "killed":
            left = left.crashed(power_loss=False)
        elif how == "power lost":
            left = left.crashed(power_loss=True)
        epoch, end = member.store.epoch_seen, member.store.log_end
        member.store.close(clean=how == "clean")
        self.members[who] = member = Member.start(left, self.clock, **LIMITS)
        assert member.store.epoch_seen == epoch
        assert member.store.log_end == end or how == "power lost"
        assert not member.store.leading
        self.joined.discard(who)
        if who == self.leads:
            self.elect(max(self.in_sync, key=self.end_of))

    # What must hold

    @rule(who=members)
    def views_are_those_of_the_log(self, who: int) -> None:
        self.compare(who)

    def compare(self, who: int) -> None:
        member = self.members[who]
        if member.store.needs_metadata:
            return
        other = rebuilt(member, self.clock, **LIMITS)
        assert differences(views(member.store, KEYS), views(other, KEYS)) == {}
        other.close(clean=False)

    @invariant()
    def logs_are_equal(self) -> None:
        for who in self.joined:
            store = self.members[who].store
            start = max(store.log_start, self.leader.log_start)
            assert store.log_end <= self.leader.log_end
            end = store.log_end
            if start < end:
                assert log_bytes(store, start, end) == log_bytes(self.leader, start, end)
                assert common_end(store, self.leader) == end

    @invariant()
    def nothing_is_seen_above_the_high_watermark(self) -> None:
        for member in self.members:
            assert member.store.high_watermark <= member.store.log_end
        for who in self.in_sync:
            assert self.end_of(who) >= self.committed
            assert not self.members[who].store.needs_metadata

    @precondition(lambda self: self.model.sent)
    @rule()
    def the_newest_records_are_there(self) -> None:
        sent = self.model.sent[-1]
        self.raise_high_watermark(set())
        record = self.leader.record_at(sent.place)
        topic = self.leader._metadata.topics.get(sent.topic)
        if topic is None or topic.birth > sent.place:
            assert record is None, "its topic was deleted, and no queue names it any more"
        else:
            assert sent.body in (record or b"")

    def teardown(self) -> None:
        for who in range(3):
            if who != self.leads:
                self.catch_up(who)
        for member in self.members:
            member.store.set_high_watermark(member.store.log_end)
        known = views(self.leader, KEYS)
        for who, member in enumerate(self.members):
            self.compare(who)
            found = views(member.store, KEYS)
            if member.store.log_start == self.leader.log_start:
                assert differences(found, known) == {}
            member.store.close()


ShardMachine.TestCase.settings = settings(
    max_examples=examples(40),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestShard = ShardMachine.TestCase
