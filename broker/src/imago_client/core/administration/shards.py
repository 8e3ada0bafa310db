"""Operations that say which shards there are, which of them are away, and whom changes reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_client.checks import check_text
from imago_client.core.lookup import cluster_info, find_route
from imago_client.core.routing import MASTER_ID
from imago_client.errors import HalfDoneError, NoRouteError, TryAgainError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from imago_client.core.effects import Operation
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_wire.remoting.bodies.route import ClusterInfo


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One shard and its live brokers by id (0 is the master)."""

    shard: str
    cluster: str
    addresses: Mapping[int, str] = field(default_factory=dict)


def shards(state: ClientState) -> Operation[list[ShardInfo]]:
    """Return all shards with a live broker, sorted by name."""
    return _shards_of((yield from cluster_info(state)))


def _shards_of(info: ClusterInfo) -> list[ShardInfo]:
    return [
        ShardInfo(name, data.cluster, dict(data.broker_addrs))
        for name, data in sorted(info.broker_addr_table.items())
    ]


@dataclass(frozen=True, slots=True)
class MissingShard:
    """A shard that nobody leads now: what it holds is in no answer about the whole cluster."""

    shard: str
    since_ms: int | None
    """Since when it is known to be away, at the latest, ms since 1970."""
    why: str


def missing_shards(state: ClientState, topic: str | None = None) -> Operation[list[MissingShard]]:
    """Return the shards that are away, those alone that have queues of `topic` where one is named.

    Other name services than Imago's do not tell.
    """
    info = yield from cluster_info(state)
    found = [MissingShard(e.broker_name, e.since, e.why) for e in info.imago_missing or ()]
    if not found or topic is None:
        return found
    having = yield from _placed_on(state, topic)
    return [each for each in found if each.shard in having]


def _placed_on(state: ClientState, topic: str) -> Operation[set[str]]:
    """Return the shards that have queues of a topic, whether or not they live."""
    route = yield from find_route(state, topic)
    return {queue.shard for queue in (*route.read_queues, *route.write_queues, *route.lost_queues)}


def placed_queues(state: ClientState, topic: str) -> Operation[list[MessageQueue]]:
    """Return the queues of a topic that can be read, or could if their shard was not away."""
    check_text("topic", topic)
    route = yield from find_route(state, topic)
    return sorted((*route.read_queues, *route.lost_queues))


def metaq_servers(state: ClientState) -> Operation[dict[str, dict[int, str]]]:
    """Return by shard the MetaQ addresses of its live members, the master's as 0.

    Other name services than Imago's tell none.
    """
    info = yield from cluster_info(state)
    return {shard: dict(found) for shard, found in (info.imago_metaq or {}).items()}


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom a change of all shards can be told."""

    masters: Mapping[str, str]
    """Shard -> address, of those that have one."""
    away: tuple[str, ...]
    """Shards without a master, where the name service knows of them."""

    def having(self, shards: Collection[str]) -> Reach:
        """The same without shards that are away and are none of these: a change is not theirs."""
        return Reach(self.masters, tuple(shard for shard in self.away if shard in shards))

    def end(self, subject: str, done: Sequence[str]) -> None:
        """HalfDoneError: shards that are away lack the change that is on the shards `done`."""
        if self.away:
            raise HalfDoneError(subject, done, no_master(self.away), away=self.away)


def no_master(shards: Sequence[str]) -> TryAgainError:
    """Return the error of a call that each of these shards has to carry out."""
    have = "has" if len(shards) == 1 else "have"
    return TryAgainError(
        f"{', '.join(shards)} {have} no master at the moment; `imago cluster explain` says what"
        " is waited for"
    )


def reach(state: ClientState) -> Operation[Reach]:
    """Return all shards, by whether they have a master. TryAgainError: none has one."""
    info = yield from cluster_info(state)
    found = _shards_of(info)
    living = masters_among(found)
    known = {one.shard for one in found} | {one.broker_name for one in info.imago_missing or ()}
    return Reach(living, tuple(sorted(known - {*living})))


def reach_having(state: ClientState, topic: str) -> Operation[Reach]:
    """Return the same; of shards that are away only those that have queues of a topic."""
    found = yield from reach(state)
    if not found.away:
        return found
    state.drop_route(topic)
    try:
        placed = yield from _placed_on(state, topic)
    except NoRouteError:
        placed = set()
    return found.having(placed)


def masters(state: ClientState) -> Operation[dict[str, str]]:
    """Return shard -> address of its master, of those that have one."""
    return masters_among((yield from shards(state)))


def masters_among(found: Sequence[ShardInfo]) -> dict[str, str]:
    """Return shard -> address of its master. TryAgainError: none has one."""
    living = {one.shard: one.addresses[MASTER_ID] for one in found if MASTER_ID in one.addresses}
    if not living:
        raise TryAgainError("the name service knows no master of any shard; is a broker up?")
    return living
