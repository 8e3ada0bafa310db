"""The protocol with its fat cut off: all states of three members that a few steps can reach.

One record is one byte, so ends are counts. Time is gone: whatever a timer could decide may happen
at any moment. What is asked of the core here are its decisions (`Rules`); sending, storing and
losing are a line each. The coordinator's answers are atomic, and a proposal is made, carried out
and learned of in three steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from imago_broker.core.shard.values import Log
from imago_broker.model.registry.shard import Member, ShardState

Life = tuple[int, int]
"""(index of a member, number of its life)."""

IDLE, FOLLOWS, LEADS = 0, 1, 2
IN_FLIGHT, TAKEN = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much may happen."""

    members: int = 3
    writes: int = 3
    epochs: int = 3
    crashes: int = 2
    losses_max: int = 1
    """Crashes that lose memory: a minimum of two in-sync members survives one."""
    expiries: int = 1
    min_in_sync: int = 2
    coarse: bool = False
    """Whether a proposal is made, carried out and learned of at once, and a copied record heard of
    at once. In between a leader waits for more and knows less, which forbids nothing: what can go
    wrong then can go wrong without it, but for mistakes in whom it waits for."""


class Shard(NamedTuple):
    """What the coordinator holds."""

    leader: Life | None
    epoch: int
    in_sync: tuple[Life, ...]
    former: tuple[Life, ...]


class Proposal(NamedTuple):
    shard: Shard
    phase: int


class Replica(NamedTuple):
    """One member: disk, process, and what it knows."""

    log: tuple[int, ...] = ()
    """Numbers of the writes."""
    epochs: tuple[tuple[int, int], ...] = ()
    seen: int = 1
    unclean: bool = False
    lost_life: int = 0
    """The truth: lives up to this one are not what the disk holds."""
    high_watermark: int = 0
    """While it leads. Others may know less, and to know less is to forbid less."""
    up: bool = True
    life: int = 1
    registered: bool = True
    role: int = IDLE
    epoch: int = 0
    leader: int = -1
    reconciled: bool = False
    known: Shard | None = None
    """What a leader takes for the coordinator's state."""
    proposal: Proposal | None = None
    heard: tuple[Life | None, ...] = ()
    """Life and acknowledged end of each follower."""


class ModelState(NamedTuple):
    """Everything, once."""

    shard: Shard
    members: tuple[Replica, ...]
    committed: tuple[int, ...]
    strong: int = 0
    """How many of the committed were so while the set had its minimum: these survive a loss."""
    writes: int = 0
    crashes: int = 0
    losses: int = 0
    expiries: int = 0


def beginning(bounds: Bounds) -> ModelState:
    """All are in sync behind member 0, in epoch 1."""
    everyone = tuple((i, 1) for i in range(bounds.members))
    shard = Shard((0, 1), 1, everyone, ())
    leader = Replica(
        epochs=((1, 0),),
        role=LEADS,
        epoch=1,
        known=shard,
        heard=(None, *((1, 0) for _ in everyone[1:])),
    )
    follower = Replica(role=FOLLOWS, epoch=1, leader=0, reconciled=True)
    return ModelState(shard, (leader, *(follower for _ in everyone[1:])), ())


# ---- into and out of the core's values ------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def member_of(life: Life) -> Member:
    return Member(f"m{life[0]}", life[1])


def life_of(member: Member) -> Life:
    return (int(member.uuid[1:]), member.incarnation)


@lru_cache(maxsize=1 << 16)
def state_of(shard: Shard) -> ShardState:
    return ShardState(
        leader=None if shard.leader is None else member_of(shard.leader),
        epoch=shard.epoch,
        in_sync=tuple(map(member_of, shard.in_sync)),
        former=tuple(map(member_of, shard.former)),
        version=0,
    )


@lru_cache(maxsize=1 << 16)
def shard_of(state: ShardState) -> Shard:
    leader = None if state.leader is None else life_of(state.leader)
    in_sync, former = map(life_of, state.in_sync), map(life_of, state.former)
    return Shard(leader, state.epoch, tuple(in_sync), tuple(former))


def log_of(replica: Replica) -> Log:
    return Log(0, len(replica.log), replica.epochs, replica.high_watermark)


def epoch_begun(
    epochs: tuple[tuple[int, int], ...], epoch: int, start: int
) -> tuple[tuple[int, int], ...]:
    """Epochs after noting one; empty ones give way."""
    if epochs and epochs[-1] == (epoch, start):
        return epochs
    return (*(pair for pair in epochs if pair[0] < epoch and pair[1] < start), (epoch, start))


def truncated(replica: Replica, end: int) -> Replica:
    epochs = tuple(pair for pair in replica.epochs if pair[1] < end)
    if len(epochs) < len(replica.epochs):
        epochs = (*epochs, (replica.epochs[-1][0], end))
    return replica._replace(log=replica.log[:end], epochs=epochs)


def quiet(replica: Replica) -> Replica:
    """The same disk and life without any role."""
    return Replica(*replica[:9])._replace(high_watermark=0)


@lru_cache(maxsize=1 << 16)
def plain(state: ShardState) -> Shard:
    return shard_of(state)


def weakened(world: ModelState) -> ModelState:
    """A memory is lost: what only too small a set had committed may be gone with it."""
    members = tuple(
        replica._replace(high_watermark=min(replica.high_watermark, world.strong))
        for replica in world.members
    )
    return world._replace(
        members=members, committed=world.committed[: world.strong], losses=world.losses + 1
    )
