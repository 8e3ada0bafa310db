"""Who does which part of a backup: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from imago_broker.model.registry.cluster import shard_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView

RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"
_ORDER = (FAILED, INTERRUPTED, RUNNING, DONE)


class ShardPart(NamedTuple):
    """One shard's part."""

    shard: str
    state: str
    told: Mapping[str, Any]
    """What the member that does it, or did, says of it."""

    def to_json(self) -> dict[str, Any]:
        """Return it as the route shows it."""
        numbers = {name: self.told.get(name, 0) for name in ("bytes", "bytesDone", "bytesSent")}
        member, error = self.told.get("member"), self.told.get("error", "")
        return {"state": self.state, "member": member, "error": error} | numbers


def parts(
    shards: Iterable[str], stored: Iterable[str], told: Iterable[Mapping[str, Any]]
) -> list[ShardPart]:
    """Return how far each shard is.

    `stored`: shards whose part is in the bucket. `told`: what members say. A part that is not
    stored and that nobody works on was interrupted, or failed where its member says why.
    """
    there, said = {*stored}, list(told)
    found = []
    for shard in shards:
        of_shard = [each for each in said if each["shard"] == shard]
        running = [each for each in of_shard if each["state"] == RUNNING]
        failed = [each for each in of_shard if each["state"] == FAILED]
        if running:
            found.append(ShardPart(shard, RUNNING, running[0]))
        elif shard in there:
            found.append(ShardPart(shard, DONE, next(iter(of_shard), {})))
        elif failed:
            found.append(ShardPart(shard, FAILED, failed[0]))
        else:
            found.append(ShardPart(shard, INTERRUPTED, {}))
    return found


def state_of(found: Iterable[ShardPart], *, complete: bool) -> str:
    """Return the state of the whole: of its worst part; done is what the bucket says is whole.

    A member that still runs is about to say so, too: nothing may be taken away before that.
    """
    states = {each.state for each in found}
    if complete and RUNNING not in states:
        return DONE
    worst = next((state for state in _ORDER if state in states), INTERRUPTED)
    return INTERRUPTED if worst == DONE else worst


def chosen(view: ClusterView, shard: int) -> BrokerRecord | None:
    """Return which member does a shard's part: one that follows in sync, so that clients do not
    notice, before the master; a whole log before one with damage. None: nobody can now."""
    master, state = view.master(shard), view.states.get(shard)
    in_sync = {each.uuid for each in state.in_sync} if state is not None else set()
    able = [
        each
        for each in view.members(shard)
        if each.admin and (each.uuid in in_sync or (master and each.uuid == master.uuid))
    ]

    def rank(member: BrokerRecord) -> tuple[bool, bool, int]:
        leads = master is not None and member.uuid == master.uuid
        return member.damaged, leads, member.replica

    return min(able, key=rank, default=None)


def numbers_of(view: ClusterView) -> dict[str, int]:
    """Return the shards that hold something, those that are away too, by name."""
    there = {*view.shards(), *view.known} - view.drained
    return {shard_name(number): number for number in sorted(there)}
