"""Why a shard is led by whom it is, or by nobody: what it waits for, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_broker.model.registry.cluster import Role, shard_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
    from imago_broker.model.registry.shard import Member, ShardState


_FULL_PAGE = "docs/runbook.md, A disk runs full"
_NO_ROOM = "DiskFullError: "
"""What a member's words say that takes no copy because its own disk is full."""


class Explanation(NamedTuple):
    """Sentences for people; an empty one says that there is nothing to say."""

    why: str
    waits_for: str = ""
    next: str = ""


def explain(
    view: ClusterView, shard: int, *, least: int = 1, stalled: Mapping[str, str] | None = None
) -> Explanation:
    """Explain one shard; `least`: in-sync members that replicated puts need.

    `stalled`: why copies stand still, by the members' uuids, where the master said so.
    """
    state, master = view.states.get(shard), view.master(shard)
    if master is not None:
        led = _led(view, shard, master, state, least)
        return _stalled(view, shard, master, led, stalled) if stalled else led
    if not view.members(shard):
        return Explanation(
            f"{shard_name(shard)} has no live member",
            f"one of its members: {_named(view, shard, _needed(view, shard, state))}",
            "start it; members of the in-sync set lead at once when they are back",
        )
    if state is None and any(m.epoch_seen or m.log_epoch for m in view.members(shard)):
        return _stateless(view, shard)
    if state is None:
        return Explanation(
            f"{shard_name(shard)} has never been led",
            "the first member to write itself down as leader",
            "it leads within a second",
        )
    return _leaderless(view, shard, state)


def _led(
    view: ClusterView, shard: int, master: BrokerRecord, state: ShardState | None, least: int
) -> Explanation:
    if state is None and len(view.members_known(shard)) > 1:
        return Explanation(
            f"{shard_name(shard)} is led by {_place(master)}, and its state was deleted",
            "its master to write it again",
            f"within a second; if the master hangs, {_lossy(view, shard)}",
        )
    if state is None:
        return Explanation(f"{shard_name(shard)} is led by its only broker, {_place(master)}")
    cause = state.history[-1].cause if state.history else state.cause
    why = (
        f"{shard_name(shard)} is led by {_place(master)} in epoch {state.epoch}"
        f"{', elected although data may be lost' if state.unclean else ''}: {cause}"
    )
    why += "".join(_hindrances(view, shard, master))
    behind = [m.uuid for m in view.members(shard) if state.in_sync_member(m.uuid) is None]
    gone = view.members_known(shard).keys() - {m.uuid for m in view.members(shard)}
    if len(state.in_sync) < least:
        waiting = _named(view, shard, behind) or _named(view, shard, gone) or "another member"
        return Explanation(
            f"{why}; {len(state.in_sync)} of {least} members are in sync, so replicated puts "
            "are refused",
            f"{waiting} to catch up",
            "it joins the in-sync set by itself once it has the whole log",
        )
    if master.full:
        return Explanation(why, *_room_for(view, shard, master, state))
    if behind:
        full = [m.uuid for m in view.members(shard) if m.full and m.uuid in behind]
        cure = f"free room on the disk of {_named(view, shard, full)}" if full else "nothing to do"
        return Explanation(why, f"{_named(view, shard, behind)} to catch up", cure)
    return Explanation(why)


def _hindrances(view: ClusterView, shard: int, master: BrokerRecord) -> Iterator[str]:
    """Yield what members have said of themselves, as parts of a sentence."""
    for member in view.members(shard):
        if member.problem:
            yield f"; {_named(view, shard, [member.uuid])} stands still: {member.problem}"
    if damaged := [member for member in view.members(shard) if member.damaged]:
        names = _named(view, shard, [member.uuid for member in damaged])
        yield f"; the log of {names} is damaged: it leads only where no whole one can"
    if master.full:
        yield "; its disk is full, so it refuses messages"


def _room_for(
    view: ClusterView, shard: int, master: BrokerRecord, state: ShardState
) -> tuple[str, str]:
    """Return what a shard waits for whose master has no room, and what comes next."""
    others = [
        _place(member)
        for member in view.members(shard)
        if member.uuid != master.uuid
        and state.in_sync_member(member.uuid) is not None
        and not (member.full or member.damaged)
    ]
    room = f"make room on the disk of {_place(master)} ({_FULL_PAGE})"
    if others:
        return f"one of {', '.join(others)} to lead", f"within seconds, by itself; {room}"
    return "room on a disk: no other in-sync member has any", room


def _stalled(
    view: ClusterView,
    shard: int,
    master: BrokerRecord,
    led: Explanation,
    stalled: Mapping[str, str],
) -> Explanation:
    full = [uuid for uuid, reason in stalled.items() if _NO_ROOM in reason]
    if full:
        names = _named(view, shard, full)
        led = Explanation(
            f"{led.why}; no copy goes to {names}, for want of room on the disk",
            f"room on the disk of {names}",
            f"make room there ({_FULL_PAGE}): then each continues by itself",
        )
    stalled = {uuid: reason for uuid, reason in stalled.items() if uuid not in full}
    if not stalled:
        return led
    reasons = " and ".join(sorted(set(stalled.values())))
    return Explanation(
        f"{led.why}; replication to {_named(view, shard, stalled)} stands still: {reasons}, and no "
        "other member has sent a whole copy",
        f"a whole copy of what is damaged at {_place(master)}",
        "start a member that has one; else put the file back from a backup while this broker is "
        f"stopped, or stop it for good and let another lead: `imago shard elect {shard} "
        "--allow-data-loss`, which loses what only this one had",
    )


def _leaderless(view: ClusterView, shard: int, state: ShardState) -> Explanation:
    live = {member.uuid: member for member in view.members(shard)}
    back = [live[member.uuid] for member in state.in_sync if member.uuid in live]
    fit = [record for record in back if _has_all(record, state)]
    why = f"{shard_name(shard)} has no master: {_end_of(view, shard, state)}"
    if fit or (back and len(state.in_sync) == len(back)):
        candidates = ", ".join(_place(record) for record in fit or back)
        if fit and not any(_went_on(record, state) for record in fit):
            missing = [member.uuid for member in state.in_sync if member.uuid not in live]
            waits = f"{_named(view, shard, missing)}, for some seconds only" if missing else ""
            return Explanation(
                f"{why}; members that came back compare their logs first",
                waits or "an election",
                f"of {candidates} the one with the longest log leads",
            )
        return Explanation(why, "an election", f"one of {candidates} leads within a second")
    missing = [member.uuid for member in state.in_sync if member.uuid not in live]
    names = _named(view, shard, missing)
    loss = f"start it; if its data is gone for good, {_lossy(view, shard)}"
    if back:
        why += ", and those in sync that are back had their machines stop without a sync"
        return Explanation(why, f"all of the in-sync set: {names} is missing", loss)
    return Explanation(
        f"{why}, and no live member is known to have all acknowledged messages", names, loss
    )


def _stateless(view: ClusterView, shard: int) -> Explanation:
    """Explain a shard whose state somebody has deleted, and that had been led: see `choose`."""
    live = {member.uuid: member for member in view.members(shard)}
    busy = [uuid for uuid, member in live.items() if member.role is not Role.ELECTING]
    missing = view.members_known(shard).keys() - live.keys()
    why = f"{shard_name(shard)} has no master, and its state was deleted, with who is in sync"
    leads = "the member with the longest log leads once all known members are there and stand still"
    if busy:
        return Explanation(
            why,
            _named(view, shard, [*busy, *missing]),
            f"{leads}, within seconds; if one does not come to that, {_lossy(view, shard)}",
        )
    if missing:
        names = _named(view, shard, missing)
        loss = f"start it; if its data is gone for good, {_lossy(view, shard)}"
        return Explanation(why, names, f"{leads}: {loss}")
    return Explanation(why, "an election", "the member with the longest log leads within a second")


def _lossy(view: ClusterView, shard: int) -> str:
    """Return a person's last way out, as a part of a sentence."""
    best = max(view.members(shard), key=lambda record: (record.log_epoch, record.log_end))
    return (
        f"`imago shard elect {shard} --allow-data-loss` makes {_place(best)} lead, "
        "which may lack acknowledged messages"
    )


def _has_all(record: BrokerRecord, state: ShardState) -> bool:
    """Whether a member of the set surely still has what it had."""
    member = state.in_sync_member(record.uuid)
    return member is not None and (member.incarnation == record.incarnation or not record.unclean)


def _went_on(record: BrokerRecord, state: ShardState) -> bool:
    """Whether the life that was in sync is there still, with a whole log."""
    member = state.in_sync_member(record.uuid)
    same = member is not None and member.incarnation == record.incarnation
    return same and not record.damaged


def _end_of(view: ClusterView, shard: int, state: ShardState) -> str:
    leader = state.leader
    if leader is None:
        return f"its last leader left in order ({state.cause})"
    name = _named(view, shard, [leader.uuid])
    if any(member.uuid == leader.uuid for member in view.members(shard)):
        return f"{name}, leader of epoch {state.epoch}, lost its session and is back as a member"
    return f"{name}, leader of epoch {state.epoch}, is gone"


def _needed(view: ClusterView, shard: int, state: ShardState | None) -> Iterable[str]:
    members: tuple[Member, ...] = state.in_sync if state else ()
    return [member.uuid for member in members] or view.members_known(shard)


def _named(view: ClusterView, shard: int, uuids: Iterable[str]) -> str:
    known = view.members_known(shard)
    return ", ".join(f"replica {known.get(uuid, '?')} ({uuid})" for uuid in sorted(uuids))


def _place(record: BrokerRecord) -> str:
    return f"replica {record.replica} at {record.host}:{record.rocketmq}"
