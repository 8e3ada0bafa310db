"""The steps of the small model: what each member, and the world, may do next."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from imago_broker.core.shard.election import ElectionOutcome, elected, led_by
from imago_broker.core.shard.in_sync import resized
from imago_broker.core.shard.reconcile import last_epoch
from imago_broker.core.shard.state import RULES, Rules
from imago_broker.core.shard.values import FollowerProgress, MemberInfo, ShardProgress
from imago_testing.simulation.small import (
    FOLLOWS,
    IN_FLIGHT,
    LEADS,
    TAKEN,
    Bounds,
    Life,
    ModelState,
    Proposal,
    Replica,
    Shard,
    epoch_begun,
    life_of,
    log_of,
    member_of,
    plain,
    quiet,
    state_of,
    truncated,
    weakened,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.core.shard.reconcile import CutBack
    from imago_broker.model.registry.shard import Member


class Steps:
    """All steps that a world can take next."""

    def __init__(self, bounds: Bounds, rules: Rules = RULES) -> None:
        self.bounds, self.rules = bounds, rules
        self._reconcile = lru_cache(maxsize=1 << 16)(rules.reconcile)

    def after(self, world: ModelState) -> Iterator[tuple[str, ModelState]]:
        """Every step with its name and the world after it."""
        for i, replica in enumerate(world.members):
            if not replica.up:
                yield from self.restarts(world, i, replica)
                continue
            yield from self.fails(world, i, replica)
            if replica.registered:
                yield from self.elects(world, i, replica)
                yield from self.learns(world, i, replica)
            else:
                yield from self.registers(world, i, replica)
            if replica.role == LEADS:
                yield from self.leads(world, i, replica)
            elif replica.role == FOLLOWS:
                yield from self.follows(world, i, replica)

    def put(self, world: ModelState, i: int, replica: Replica) -> ModelState:
        members = world.members
        return world._replace(members=(*members[:i], replica, *members[i + 1 :]))

    # ---- faults ------------------------------------------------------------------------------

    def fails(
        self, world: ModelState, i: int, replica: Replica
    ) -> Iterator[tuple[str, ModelState]]:
        bounds = self.bounds
        if world.crashes < bounds.crashes:
            dead = Replica(
                replica.log,
                replica.epochs,
                replica.seen,
                replica.unclean,
                replica.lost_life,
                up=False,
                life=replica.life,
                registered=replica.registered,
            )
            counted = world._replace(crashes=world.crashes + 1)
            yield f"{i} is killed", self.put(counted, i, dead)
            if world.losses < bounds.losses_max:
                counted = weakened(counted)
                for end in range(len(replica.log) + 1):
                    lossy = truncated(dead, end)._replace(unclean=True, lost_life=replica.life)
                    yield f"{i} loses power, back to {end}", self.put(counted, i, lossy)
        if replica.registered and world.expiries < bounds.expiries:
            counted = world._replace(expiries=world.expiries + 1)
            yield f"session of {i} ends", self.put(counted, i, replica._replace(registered=False))

    def restarts(
        self, world: ModelState, i: int, replica: Replica
    ) -> Iterator[tuple[str, ModelState]]:
        if replica.registered:
            yield f"session of {i} ends", self.put(world, i, replica._replace(registered=False))
        back = replica._replace(up=True, registered=True, life=replica.life + 1)
        yield f"{i} starts", self.put(world, i, back)

    def registers(
        self, world: ModelState, i: int, replica: Replica
    ) -> Iterator[tuple[str, ModelState]]:
        """It has noticed that its session is over: a new life of the same process."""
        back = Replica(
            replica.log,
            replica.epochs,
            replica.seen,
            replica.unclean,
            replica.lost_life,
            life=replica.life + 1,
        )
        yield f"{i} registers again", self.put(world, i, back)

    # ---- coordinator -------------------------------------------------------------------------

    def live(self, world: ModelState) -> dict[str, MemberInfo]:
        return {
            f"m{i}": MemberInfo(
                replica.life, i, replica.unclean, last_epoch(log_of(replica)), len(replica.log)
            )
            for i, replica in enumerate(world.members)
            if replica.registered
        }

    def elects(
        self, world: ModelState, i: int, replica: Replica
    ) -> Iterator[tuple[str, ModelState]]:
        shard = world.shard
        if shard.epoch >= self.bounds.epochs or replica.proposal is not None:
            return
        leader = shard.leader
        if leader is not None:
            there = world.members[leader[0]]
            if there.registered and there.life == leader[1] and leader != (i, replica.life):
                return
            if leader == (i, replica.life) and replica.seen < shard.epoch:
                return
            if leader == (i, replica.life) and replica.role == LEADS:
                return
        live = self.live(world)
        everyone = frozenset(f"m{k}" for k in range(len(world.members)))
        choice = self.rules.choose(state_of(shard), live, everyone, self.rules.electable)
        if f"m{i}" not in choice.candidates:
            return
        after = elected(
            state_of(shard),
            member_of((i, replica.life)),
            live,
            ElectionOutcome(epoch=shard.epoch + 1, cause="leader gone"),
            min_in_sync=self.bounds.min_in_sync,
            may_lead=self.rules.electable,
        )
        yield f"{i} is elected", world._replace(shard=plain(after))

    def learns(
        self, world: ModelState, i: int, replica: Replica
    ) -> Iterator[tuple[str, ModelState]]:
        """A member sees what the coordinator holds. A leader that waits learns by its answer."""
        if replica.proposal is not None:
            return
        shard, me = world.shard, (i, replica.life)
        if replica.unclean and me in shard.in_sync:
            yield f"{i} is sound", self.put(world, i, replica._replace(unclean=False))
        if shard.leader != me:
            yield from self.finds(world, i, replica)
        elif shard.epoch > replica.seen:
            yield f"{i} begins epoch {shard.epoch}", self.put(world, i, self.begun(world, i))
        elif replica.role == LEADS and replica.known != shard:
            yield f"{i} looks", self.put(world, i, replica._replace(known=shard))

    def finds(
        self, world: ModelState, i: int, replica: Replica
    ) -> Iterator[tuple[str, ModelState]]:
        """Another leads: promise, and follow it as soon as it has begun."""
        shard = world.shard
        if shard.leader is None or shard.epoch < replica.seen:
            return
        follows = replica.role == FOLLOWS and replica.epoch == shard.epoch
        j = shard.leader[0]
        there = world.members[j]
        if there.up and there.role == LEADS and there.epoch == shard.epoch:
            if not (follows and replica.reconciled):
                yield from self.joins(world, i, replica, j)
        elif not follows:
            promised = quiet(replica)._replace(
                seen=shard.epoch, role=FOLLOWS, epoch=shard.epoch, leader=j
            )
            yield f"{i} promises {shard.epoch}", self.put(world, i, promised)

    def begun(self, world: ModelState, i: int) -> Replica:
        replica, shard = world.members[i], world.shard
        return quiet(replica)._replace(
            epochs=epoch_begun(replica.epochs, shard.epoch, len(replica.log)),
            seen=shard.epoch,
            unclean=False,
            role=LEADS,
            epoch=shard.epoch,
            known=shard,
            heard=(None,) * len(world.members),
        )

    # ---- following ---------------------------------------------------------------------------

    def joins(
        self, world: ModelState, i: int, replica: Replica, j: int
    ) -> Iterator[tuple[str, ModelState]]:
        """Promise, reconcile and fetch, as one step: only the log of the leader matters."""
        leader = world.members[j]
        cut: CutBack = self._reconcile(log_of(replica), log_of(leader))
        joined = truncated(replica, cut.end) if cut.end < len(replica.log) else replica
        joined = quiet(joined)._replace(
            seen=leader.epoch, role=FOLLOWS, epoch=leader.epoch, leader=j
        )
        if self.rules.valid_fetch(log_of(leader), cut.end, cut.epoch):
            joined = joined._replace(reconciled=True)
            if leader.log[: cut.end] != joined.log:
                raise AssertionError(f"{i} fetches {cut.end} of {j} after another log")
            heard = list(leader.heard)
            heard[i] = (replica.life, cut.end)
            world = self.put(world, j, leader._replace(heard=tuple(heard)))
        yield f"{i} follows {j} from {cut.end}", self.put(world, i, joined)

    def follows(
        self, world: ModelState, i: int, replica: Replica
    ) -> Iterator[tuple[str, ModelState]]:
        """Copy one record."""
        leader = world.members[replica.leader]
        if not (replica.reconciled and leader.up and leader.role == LEADS):
            return
        if not self.rules.takes(leader.epoch, replica.epoch):
            return
        end = len(replica.log)
        if end == len(leader.log):
            return
        epoch, start = max(pair for pair in leader.epochs if pair[1] <= end)
        copied = replica._replace(
            log=(*replica.log, leader.log[end]),
            epochs=epoch_begun(replica.epochs, epoch, start),
        )
        after = self.put(world, i, copied)
        heard = leader.heard[i]
        if self.bounds.coarse and heard is not None and heard[0] == replica.life:
            known = (*leader.heard[:i], (replica.life, end + 1), *leader.heard[i + 1 :])
            after = self.raised(after, replica.leader, leader._replace(heard=known))
        yield f"{i} copies up to {end + 1}", after

    # ---- leading -----------------------------------------------------------------------------

    def leads(self, world: ModelState, j: int, leader: Replica) -> Iterator[tuple[str, ModelState]]:
        if world.writes < self.bounds.writes:
            written = leader._replace(log=(*leader.log, world.writes))
            counted = world._replace(writes=world.writes + 1)
            yield f"{j} writes", self.raised(counted, j, written)
        for i, heard in enumerate(leader.heard):
            there = world.members[i]
            end = len(there.log)
            if heard is None or heard[0] != there.life or heard[1] >= end or not there.reconciled:
                continue
            if there.leader == j and self.rules.takes(there.epoch, leader.epoch):
                known = (*leader.heard[:i], (there.life, end), *leader.heard[i + 1 :])
                acked = leader._replace(heard=known)
                yield f"{j} hears that {i} has {end}", self.raised(world, j, acked)
        if leader.proposal is None:
            yield from self.proposes(world, j, leader)
        else:
            yield from self.resolves(world, j, leader, leader.proposal)

    def waits(self, j: int, leader: Replica) -> frozenset[Member]:
        assert leader.known is not None
        proposed = None if leader.proposal is None else state_of(leader.proposal.shard)
        me = member_of((j, leader.life))
        return self.rules.waited_for(state_of(leader.known), proposed, None, me)

    def raised(self, world: ModelState, j: int, leader: Replica) -> ModelState:
        """The leader, its high watermark as high as it may be, and what that commits."""
        ends = [len(leader.log)]
        for member in self.waits(j, leader):
            i, life = life_of(member)
            heard = leader.heard[i]
            ends.append(-1 if heard is None or heard[0] != life else heard[1])
        end = max(leader.high_watermark, min(ends))
        leader = leader._replace(high_watermark=end)
        committed = world.committed
        both = min(end, len(committed))
        assert leader.log[:both] == committed[:both], f"{j} commits another log"
        if end > len(committed):
            committed = leader.log[:end]
        strong = world.strong
        assert leader.known is not None
        if len(leader.known.in_sync) >= self.bounds.min_in_sync:
            strong = max(strong, end)
        return self.put(world._replace(committed=committed, strong=strong), j, leader)

    def proposes(
        self, world: ModelState, j: int, leader: Replica
    ) -> Iterator[tuple[str, ModelState]]:
        """Shrink, grow, hand over; whatever the timers of the real thing might say."""
        known = leader.known
        assert known is not None
        me = (j, leader.life)
        for entry in known.in_sync:
            if entry != me:
                rest = tuple(other for other in known.in_sync if other != entry)
                yield from self.proposed(world, j, f"{j} drops {entry[0]}", rest)
        live = self.live(world)
        start = leader.epochs[-1][1]
        progress = ShardProgress(len(leader.log), 0, leader.high_watermark, 0, {})
        for i, heard in enumerate(leader.heard):
            if heard is None:
                continue
            follower = FollowerProgress(heard[1], 1 << 30, 0, 0)
            named = self.rules.joiner(member_of((i, heard[0])), follower, live)
            if named is None or life_of(named) in known.in_sync:
                continue
            if self.rules.joinable(follower, progress, start):
                rest = tuple(other for other in known.in_sync if other[0] != i)
                members = tuple(sorted((*rest, life_of(named))))
                yield from self.proposed(world, j, f"{j} takes {i} in", members)
            continue
        if known.epoch < self.bounds.epochs:
            yield from self.hands_over(world, j, leader, known)

    def proposed(
        self, world: ModelState, j: int, name: str, in_sync: tuple[Life, ...]
    ) -> Iterator[tuple[str, ModelState]]:
        leader = world.members[j]
        assert leader.known is not None
        members = tuple(map(member_of, in_sync))
        minimum = self.bounds.min_in_sync
        after = resized(state_of(leader.known), members, "resized", min_in_sync=minimum)
        yield from self.made(world, j, name, plain(after))

    def made(
        self, world: ModelState, j: int, name: str, shard: Shard
    ) -> Iterator[tuple[str, ModelState]]:
        """A proposal is on its way; in coarse steps it is there and back."""
        leader = world.members[j]
        if not self.bounds.coarse:
            proposal = Proposal(shard, IN_FLIGHT)
            yield name, self.put(world, j, leader._replace(proposal=proposal))
        elif leader.known == world.shard and leader.registered:
            taken = leader._replace(proposal=Proposal(shard, TAKEN))
            changed = self.put(world._replace(shard=shard), j, taken)
            for _, after in self.resolves(changed, j, taken, Proposal(shard, TAKEN)):
                yield name, after

    def hands_over(
        self, world: ModelState, j: int, leader: Replica, known: Shard
    ) -> Iterator[tuple[str, ModelState]]:
        for entry in known.in_sync:
            heard = leader.heard[entry[0]]
            if entry[0] != j and heard == (entry[1], len(leader.log)):
                in_sync = tuple(map(member_of, known.in_sync))
                after = led_by(
                    state_of(known), member_of(entry), known.epoch + 1, "handover", in_sync=in_sync
                )
                yield from self.made(world, j, f"{j} hands over to {entry[0]}", plain(after))

    def resolves(
        self, world: ModelState, j: int, leader: Replica, proposal: Proposal
    ) -> Iterator[tuple[str, ModelState]]:
        shard, phase = proposal
        if phase == IN_FLIGHT:
            if leader.known == world.shard and leader.registered:
                taken = leader._replace(proposal=Proposal(shard, TAKEN))
                changed = self.put(world._replace(shard=shard), j, taken)
                yield f"{j} has changed the state", changed
            else:
                lost = leader._replace(proposal=None)
                yield f"{j} is refused", self.raised(world, j, lost)
            return
        settled = leader._replace(proposal=None, known=shard)
        if shard.leader != (j, leader.life):
            yield f"{j} has handed over", self.put(world, j, quiet(settled))
        else:
            yield f"{j} learns", self.raised(world, j, settled)
