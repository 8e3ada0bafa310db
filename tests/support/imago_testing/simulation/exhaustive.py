"""Breadth first through every state that the small model can reach.

Where these are too many for the time, the search ends with all states up to some depth looked at,
and goes on at random from the last of them to where nothing more can happen.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.core.shard.in_sync import waited_for
from imago_broker.core.shard.state import RULES, Rules
from imago_testing.simulation.small import (
    LEADS,
    Bounds,
    Life,
    ModelState,
    Shard,
    beginning,
    member_of,
    state_of,
)
from imago_testing.simulation.steps import Steps
from imago_testing.simulation.symmetry import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SMALL = Bounds(writes=1, epochs=2, crashes=1, expiries=0)
MEDIUM = Bounds(writes=2, epochs=2, crashes=1, expiries=0)
FULL = Bounds(writes=3, epochs=3, crashes=2, expiries=0, coarse=True)
WAYS_MAX = 3_000_000
"""States of which the way to them is remembered."""
SECONDS_MAX, STATES_MAX = 20 * 60, 4_000_000
"""Of a search that `make simulate MODEL=` begins."""
WALK_SECONDS = 8 * 60
"""Of the walks behind one that a limit has ended."""
WALK_STEPS_MAX, WALK_SEED = 200, 1


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search has seen."""

    states: int
    depth: int
    whole: bool
    """False: a limit ended it."""
    edge: tuple[ModelState, ...] = ()
    """States that were looked at, and not what may come after them."""


class BrokenStateError(AssertionError):
    """A state that may not be; the message tells the way to it."""


def check(world: ModelState) -> None:
    """The invariants that a state can break by itself."""
    shard, members, committed = world.shard, world.members, world.committed
    for i, life in shard.in_sync:
        replica = members[i]
        if life > replica.lost_life:
            assert replica.log[: len(committed)] == committed, f"I6: {i} is in sync, incomplete"
    epochs = [replica.epoch for replica in members if replica.up and replica.role == LEADS]
    assert len(epochs) == len(set(epochs)), f"I4: two leaders of {epochs}"
    for i, replica in enumerate(members):
        end = min(replica.high_watermark, len(committed))
        assert replica.log[:end] == committed[:end], f"I3: {i} differs below {end}"
    if shard.leader is not None:
        check_leader(world, shard, shard.leader)


def check_leader(world: ModelState, shard: Shard, leader: Life) -> None:
    replica = world.members[leader[0]]
    if not (replica.up and replica.role == LEADS and replica.epoch == shard.epoch):
        return
    assert replica.log[: len(world.committed)] == world.committed, f"I1: {leader} lacks records"
    proposal = None if replica.proposal is None else state_of(replica.proposal.shard)
    assert replica.known is not None
    waits = waited_for(state_of(replica.known), proposal, None, member_of(leader))
    needed = waited_for(state_of(shard), None, None, member_of(leader))
    assert needed <= waits, f"I7: {leader} waits for {waits} of {shard}"


# ---- search ---------------------------------------------------------------------------------


def explore(
    bounds: Bounds,
    rules: Rules = RULES,
    *,
    states_max: int = 1 << 62,
    over: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int, int], None] | None = None,
) -> Explored:
    """Look at every reachable state once; `BrokenStateError` tells the steps to a wrong one.

    `over`: whether it is time to end, asked once a state.
    """
    steps = Steps(bounds, rules)
    first = canonical(beginning(bounds))
    seen = {hash(first)}
    met: set[int] = set()
    came: dict[int, tuple[int, str]] = {}
    level, depth = [first], 0
    while level:
        following: list[ModelState] = []
        for at, world in enumerate(level):
            if over() or len(seen) > states_max:
                return Explored(len(seen), depth, whole=False, edge=(*level[at:], *following))
            following += fresh(steps, world, seen, met, came)
        depth += 1
        level = following
        if progress is not None:
            progress(depth, len(seen), len(level))
    return Explored(len(seen), depth, whole=True)


def fresh(
    steps: Steps,
    world: ModelState,
    seen: set[int],
    met: set[int],
    came: dict[int, tuple[int, str]],
) -> Iterator[ModelState]:
    """The worlds one step further that were not seen yet, each looked at.

    `met`: the same as `seen` of worlds under the names that steps gave them, to rename fewer.
    """
    parent, name = hash(world), ""
    try:
        for name, after in steps.after(world):
            if (mark := hash(after)) in met:
                continue
            met.add(mark)
            same = canonical(after)
            mark = hash(same)
            if mark not in seen:
                seen.add(mark)
                if len(came) < WAYS_MAX:
                    came[mark] = (parent, name)
                check(same)
                yield same
    except AssertionError as error:
        told = f"{error}\n{way(came, parent)}\nthen {name}, from {world}"
        raise BrokenStateError(told) from error


def walk(
    bounds: Bounds, edge: Sequence[ModelState], rng: random.Random, over: Callable[[], bool]
) -> tuple[int, int]:
    """Go on at random from an edge; return how many walks and how many steps that were."""
    steps, walks, taken = Steps(bounds, RULES), 0, 0
    while not over():
        world, walks = rng.choice(edge), walks + 1
        came: dict[int, tuple[int, str]] = {}
        for _ in range(WALK_STEPS_MAX):
            following = list(fresh(steps, world, set(), set(), came))
            taken += len(following)
            if not following:
                break
            world = rng.choice(following)
    return walks, taken


def way(came: dict[int, tuple[int, str]], mark: int) -> str:
    """The steps that led to a state, each under the names of its own time."""
    told: list[str] = []
    while mark in came:
        mark, name = came[mark]
        told.append(name)
    return "\n".join(reversed(told))


BOUNDS = {"small": SMALL, "medium": MEDIUM, "full": FULL}


def main(model: str, *, seconds_max: float = SECONDS_MAX, walk_s: float = WALK_SECONDS) -> int:
    """Explore and print how much there was."""
    bounds = BOUNDS[model]
    began = time.monotonic()
    print(f"{bounds}\nat most {seconds_max:.0f} s and {STATES_MAX} states, then walks", flush=True)

    def took() -> float:
        return time.monotonic() - began

    def progress(depth: int, states: int, fresh: int) -> None:
        print(f"depth {depth}: {states} states, {fresh} new, {took():.0f} s", flush=True)

    found = explore(
        bounds, states_max=STATES_MAX, over=lambda: took() > seconds_max, progress=progress
    )
    if found.whole:
        print(f"{found.states} states, {found.depth} steps deep: all; no invariant broken")
        return 0
    print(
        f"{found.states} states: all that {found.depth} steps reach, and some of the next; "
        f"not all: {len(found.edge)} were not gone on from, after {took():.0f} s",
        flush=True,
    )
    end_s = took() + walk_s
    walks, states = walk(bounds, found.edge, random.Random(WALK_SEED), lambda: took() > end_s)
    print(f"{walks} walks from there to their ends, over {states} states; no invariant broken")
    return 0
