"""What is done about an ImagoRebalance, case by case, and for any cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_operator.contents.belonging import Claimant
from imago_operator.contents.conditions import ContentRefusal
from imago_operator.contents.moves import (
    DrainShard,
    LeaveShard,
    RebalanceLook,
    RebalancePlan,
    Spread,
    Undrain,
    plan,
)
from imago_operator.contents.values import SeenShard, SeenTopic, TopicQueues
from imago_operator.spec.kinds import REBALANCE
from imago_operator.spec.rebalance import Moved, Phase, Proposal, RebalanceStatus
from imago_operator.spec.schema.fields import to_json
from imago_operator.spec.schema.schema import problems
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import START
from imago_testing.operated.fake_contents_port import FakeContentsPort

if TYPE_CHECKING:
    from imago_operator.contents.moves import Step

ME = Claimant(namespace="mq", name="demo", uid="u-1", created="2026-01-01T00:00:02Z")
FULL = TopicQueues(4, 4)
CLOSED = TopicQueues(0, 4, 4)


def topic(name: str, *on: int, closed: tuple[int, ...] = ()) -> SeenTopic:
    shards = dict.fromkeys(on, FULL) | dict.fromkeys(closed, CLOSED)
    return SeenTopic(name=name, shards=shards)


def look(
    mode: str = "Drain", *, phase: Phase | None = Phase.RUNNING, **changes: Any
) -> RebalanceLook:
    spec: dict[str, Any] = {"spec.mode": mode, "spec.shards": [] if mode == "Full" else [1]}
    spec |= {f"spec.{name}": value for name, value in changes.pop("said", {}).items()}
    listed = (topic("a", 0, 1), topic("b", 1), topic("c", 0), topic("%RETRY%g", 1))
    known: dict[str, Any] = {
        "me": ME,
        "spec": REBALANCE.read(manifest("ImagoRebalance", spec)),
        "status": RebalanceStatus(phase=phase, plan=Proposal(topics=3)),
        "topics": {t.name: t for t in changes.pop("listed_topics", listed)},
        "shards": {n: SeenShard(id=n) for n in range(3)},
    }
    return RebalanceLook(**(known | changes))


def planned(at: RebalanceLook) -> RebalancePlan:
    return plan(at, START)


def reason(at: RebalanceLook) -> str:
    return next(c.reason for c in planned(at).status.conditions if c.type == "Ready")


def steps(at: RebalanceLook) -> tuple[Step, ...]:
    return planned(at).steps


ONLY_B = {"topics": {"include": ["b*"]}}
STEPS: list[tuple[RebalanceLook, tuple[Step, ...]]] = [
    (look("Drain"), (DrainShard(1, True),)),
    (look("Seal"), (DrainShard(1, False),)),
    (look("Drain", said=ONLY_B), (LeaveShard("b", 1, True, 4),)),
    (look("Seal", said=ONLY_B), (LeaveShard("b", 1, False, 4),)),
    (look("Fill"), (Spread("c", (1,), 4),)),
    (look("Fill", said={"shards": [2]}), tuple(Spread(n, (2,), 4) for n in "abc")),
    (look("Full"), (Spread("a", (2,), 4), Spread("b", (0, 2), 8), Spread("c", (1, 2), 8))),
    (look("Full", said={"topics": {"exclude": ["a", "c"]}}), (Spread("b", (0, 2), 8),)),
    (look("Full", said={"concurrentTopics": 1}), (Spread("a", (2,), 4),)),
    (look("Full", placed=frozenset("ab")), (Spread("c", (1, 2), 8),)),
    (look("Full", listed_topics=[topic("x", closed=(0, 1))]), ()),
    (look("Drain", said={"shards": [7]}), ()),
]


@pytest.mark.parametrize(("at", "expected"), STEPS)
def test_what_is_left_follows_from_what_is_there(
    at: RebalanceLook, expected: tuple[Step, ...]
) -> None:
    assert steps(at) == expected


@pytest.mark.parametrize(
    ("mode", "said", "proposal"),
    [
        ("Full", {}, Proposal(topics=3, opened=20, sealed=0)),
        ("Fill", {}, Proposal(topics=1, opened=4, sealed=0)),
        # a and b and g's retries leave: each gets queues on one more shard.
        ("Drain", {}, Proposal(topics=3, opened=12, sealed=12)),
        ("Seal", {}, Proposal(topics=3, opened=0, sealed=12)),
        ("Drain", ONLY_B, Proposal(topics=1, opened=4, sealed=4)),
        ("Seal", ONLY_B, Proposal(topics=1, opened=0, sealed=4)),
    ],
)
def test_a_proposal_counts_what_would_be_done(
    mode: str, said: dict[str, Any], proposal: Proposal
) -> None:
    found = planned(look(mode, phase=None, said=said))
    assert (found.status.phase, found.status.plan) == (Phase.APPROVED, proposal)
    assert found.steps == (), "it is written down before anything is done"


def test_what_needs_approval_waits_for_it() -> None:
    at = look(phase=None, said={"approval": "Manual"})
    found = planned(at)
    assert (found.status.phase, found.again, reason(at)) == (
        Phase.PROPOSED, False, "ApprovalRequired",
    )  # fmt: skip
    approved = replace(ME, annotations={"imago.dev/approve": "true"})
    then = replace(at, status=found.status, me=approved)
    assert planned(then).status.phase is Phase.APPROVED
    assert planned(replace(then, me=replace(ME, annotations={"imago.dev/approve": "no"}))) == found


def drained(**changes: Any) -> dict[int, SeenShard]:
    known: dict[str, Any] = {"id": 1, "cordoned": True, "draining": True, "to_move": 0}
    return {0: SeenShard(id=0), 1: SeenShard(**(known | changes))}


@pytest.mark.parametrize(
    ("shards", "phase", "said"),
    [
        (drained(to_move=2), Phase.RUNNING, "Running"),
        (drained(to_move=None), Phase.RUNNING, "Running"),
        (drained(), Phase.SUCCEEDED, "Succeeded"),
        (drained(drained=True, to_move=None), Phase.SUCCEEDED, "Succeeded"),
    ],
)
def test_a_drain_is_over_when_brokers_say_so(
    shards: dict[int, SeenShard], phase: Phase, said: str
) -> None:
    at = look(shards=shards)
    assert (planned(at).status.phase, planned(at).steps, reason(at)) == (phase, (), said)


def test_what_has_to_be_read_and_what_is_in_the_way_is_told() -> None:
    def text(at: RebalanceLook) -> str:
        return planned(at).status.conditions[0].message

    assert "7 messages are still unread" in text(look(shards=drained(unread=7)))
    assert "1 message is still unread" in text(look(shards=drained(unread=1)))
    waits = look(shards=drained(to_move=1, blocked="b: shard-0 is away"))
    assert "Brokers wait: b: shard-0 is away" in text(waits)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (look("Fill", shards={0: SeenShard(id=0)}), "NoRoom"),
        (look("Fill", shards=drained()), "NoRoom"),
        (look("Drain", shards={1: SeenShard(id=1)}), "NoRoom"),
        (look("Drain", shards={1: SeenShard(id=1), 0: SeenShard(id=0, master=False)}), "NoRoom"),
        (look("Seal", shards={1: SeenShard(id=1)}), "Running"),
        (look(listed=False), "ClusterNotReady"),
        (look(refusal=ContentRefusal("ClusterNotFound", "")), "ClusterNotFound"),
    ],
)
def test_what_is_in_the_way(at: RebalanceLook, expected: str) -> None:
    assert reason(at) == expected
    assert bool(steps(at)) == (expected == "Running")


STOP = replace(ME, annotations={"imago.dev/stop": "true"})


def test_a_drain_is_stopped_by_taking_it_back() -> None:
    at = look(me=STOP, shards=drained(to_move=2))
    found = planned(at)
    assert (found.status.phase, found.steps) == (Phase.STOPPING, (Undrain(1),))
    back = {n: SeenShard(id=n) for n in range(2)}
    after = replace(at, status=found.status, shards=back)
    assert (planned(after).status.phase, reason(after)) == (Phase.FAILED, "Stopped")


def test_one_that_has_not_begun_takes_nothing_back() -> None:
    at = look(me=STOP, phase=Phase.PROPOSED, shards=drained())
    assert (planned(at).status.phase, planned(at).steps) == (Phase.FAILED, ())


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_what_is_over_stays_so(phase: Phase) -> None:
    at = look(phase=phase, me=STOP)
    assert planned(at) == RebalancePlan(status=at.status)


def test_the_status_fits_its_schema() -> None:
    for at, _ in STEPS:
        written = to_json(planned(at).status)
        assert list(problems(REBALANCE.status_schema, written, "status")) == []


@st.composite
def clusters(draw: st.DrawFn) -> FakeContentsPort:
    """Return brokers with topics here and there, some of them closed."""
    shards = tuple(range(draw(st.integers(1, 4))))
    fake = FakeContentsPort(shard_numbers=shards)
    for name in draw(st.sets(st.sampled_from(["a", "b", "c.d", "%RETRY%g"]))):
        on = draw(st.sets(st.sampled_from(shards), min_size=1))
        kinds = st.sampled_from([FULL, CLOSED, TopicQueues(2, 2)])
        queues = {shard: draw(kinds) for shard in sorted(on)}
        fake.topics_by_name[name] = SeenTopic(name=name, shards=queues)
    fake.cordoned = draw(st.sets(st.sampled_from(shards), max_size=1))
    return fake


MODES = st.sampled_from(["Full", "Drain", "Seal", "Fill"])
FILTERS = st.sampled_from([{}, {"include": ["a*", "c*"]}, {"exclude": ["a"]}])


@settings(deadline=None)
@given(clusters(), MODES, st.sampled_from([(1,), (0, 2)]), FILTERS, st.integers(1, 3))
def test_any_rebalance_comes_to_its_end_or_says_what_it_waits_for(
    fake: FakeContentsPort, mode: str, shards: tuple[int, ...], chosen: dict[str, Any], at_once: int
) -> None:
    """Carried out on brokers, step by step, each time by an operator that knows nothing."""
    said = {"shards": [] if mode == "Full" else list(shards), "topics": chosen}
    at = look(mode, phase=None, said=said | {"concurrentTopics": at_once})
    before = dict(fake.topics_by_name)
    for _ in range(40):
        found_shards = {n: fake._shard(n) for n in fake.shard_numbers}
        at = replace(at, topics=dict(fake.topics_by_name), shards=found_shards)
        found = planned(at)
        if not at.whole:
            assert len(found.steps) <= at_once
        asyncio.run(carry_out(fake, found.steps))
        fake.look_like_brokers()
        at = replace(at, status=found.status)
    assert at.status.phase in {Phase.SUCCEEDED, Phase.RUNNING}
    if at.status.phase is Phase.RUNNING:
        assert reason(at) == "NoRoom"
    else:
        assert at.status.progress is not None
        assert at.status.progress.remaining == 0
        assert planned(replace(at, status=replace(at.status, phase=Phase.RUNNING))).steps == ()
    for name, topic_before in before.items():
        now = fake.topics_by_name[name]
        assert set(topic_before.shards) <= set(now.shards), "no queue is ever taken away"
        if mode != "Seal" and topic_before.open_on:
            assert now.open_on, f"{name} takes messages nowhere"
        if name == "a" and "exclude" in chosen:
            assert now == topic_before, "it was left out"


async def carry_out(fake: FakeContentsPort, todo: tuple[Step, ...]) -> None:
    for step in todo:
        match step:
            case DrainShard(shard, move):
                await fake.drain((), shard, request_id="r", move=move, operator_epoch=1)
            case Spread(name, to):
                await fake.spread((), name, to, operator_epoch=1)
            case LeaveShard(name, shard, move):
                leave = fake.move if move else fake.seal
                await leave((), name, shard, operator_epoch=1)
            case Undrain(shard):
                raise AssertionError(f"nobody wanted shard-{shard} back")


def test_moved_is_what_was_proposed_less_what_is_left() -> None:
    at = look("Full", said={"concurrentTopics": 1})
    assert planned(at).status.progress == Moved(done=0, remaining=3)
    fewer = replace(at, topics={"b": topic("b", 1)})
    assert planned(fewer).status.progress == Moved(done=2, remaining=1)
