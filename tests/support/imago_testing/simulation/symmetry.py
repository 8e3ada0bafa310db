"""Worlds that differ only by the names of members and lives are one world."""

from __future__ import annotations

from itertools import permutations

from imago_testing.simulation.small import Life, ModelState, Replica, Shard


def canonical(world: ModelState) -> ModelState:
    """The same world under the names that make it the least of those that differ by names."""
    world = aged(world)
    keys = [signature(world, i, replica) for i, replica in enumerate(world.members)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    groups: list[list[int]] = []
    for i in order:
        if groups and keys[groups[-1][0]] == keys[i]:
            groups[-1].append(i)
        else:
            groups.append([i])
    if all(len(group) == 1 for group in groups):
        return world if order == list(range(len(order))) else renamed(world, order)
    orders: list[list[int]] = [[]]
    for group in groups:
        orders = [[*before, *tail] for before in orders for tail in permutations(group)]
    return min((renamed(world, each) for each in orders), key=repr)


def aged(world: ModelState) -> ModelState:
    """The same world with lives numbered from 1: only which are the same, and which came first
    after a loss of memory, tells them apart."""
    lives = lives_named(world)
    if all(max(each) < len(each) for each in lives):
        return world
    number = [{life: n for n, life in enumerate(sorted({0, *each}))} for each in lives]

    def life_aged(life: Life) -> Life:
        return (life[0], number[life[0]][life[1]])

    def shard_aged(shard: Shard) -> Shard:
        leader = None if shard.leader is None else life_aged(shard.leader)
        in_sync, former = map(life_aged, shard.in_sync), map(life_aged, shard.former)
        return Shard(leader, shard.epoch, tuple(in_sync), tuple(former))

    def member_aged(i: int, replica: Replica) -> Replica:
        proposal = replica.proposal
        if proposal is not None:
            proposal = proposal._replace(shard=shard_aged(proposal.shard))
        heard = (h and (number[k][h[0]], h[1]) for k, h in enumerate(replica.heard))
        return replica._replace(
            life=number[i][replica.life],
            lost_life=number[i][replica.lost_life],
            known=replica.known and shard_aged(replica.known),
            proposal=proposal,
            heard=tuple(heard),
        )

    return world._replace(
        shard=shard_aged(world.shard),
        members=tuple(member_aged(i, replica) for i, replica in enumerate(world.members)),
    )


def lives_named(world: ModelState) -> list[set[int]]:
    """Numbers of all lives of each member that anybody speaks of."""
    members = world.members
    lives = [{replica.life, replica.lost_life} for replica in members]
    shards = [world.shard, *(replica.known for replica in members if replica.known)]
    shards += [replica.proposal.shard for replica in members if replica.proposal]
    for shard in shards:
        for i, life in (*shard.in_sync, *shard.former):
            lives[i].add(life)
    for replica in members:
        for i, heard in enumerate(replica.heard):
            if heard is not None:
                lives[i].add(heard[0])
    return lives


def signature(world: ModelState, i: int, replica: Replica) -> tuple[object, ...]:
    """What tells a member from the others without naming anybody."""
    shard = world.shard
    return (
        replica[:11],
        replica.reconciled,
        shard.leader is not None and shard.leader[0] == i,
        [life for k, life in shard.in_sync if k == i],
        [life for k, life in shard.former if k == i],
    )


def renamed(world: ModelState, order: list[int]) -> ModelState:
    """The world in which member `order[k]` is called k."""
    name = [0] * len(order)
    for new, old in enumerate(order):
        name[old] = new

    def lives(those: tuple[Life, ...]) -> tuple[Life, ...]:
        return tuple(sorted((name[i], life) for i, life in those))

    def shard_renamed(shard: Shard) -> Shard:
        leader = shard.leader
        return Shard(
            None if leader is None else (name[leader[0]], leader[1]),
            shard.epoch,
            lives(shard.in_sync),
            lives(shard.former),
        )

    def member_renamed(replica: Replica) -> Replica:
        if replica.leader < 0 and replica.known is None:
            return replica
        proposal = replica.proposal
        if proposal is not None:
            proposal = proposal._replace(shard=shard_renamed(proposal.shard))
        return replica._replace(
            leader=replica.leader if replica.leader < 0 else name[replica.leader],
            known=None if replica.known is None else shard_renamed(replica.known),
            proposal=proposal,
            heard=tuple(replica.heard[old] for old in order) if replica.heard else (),
        )

    return world._replace(
        shard=shard_renamed(world.shard),
        members=tuple(member_renamed(world.members[old]) for old in order),
    )
