"""What `imago doctor` finds about the shards of a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_cli.clusters.admin_http import cluster_at
from imago_cli.clusters.cluster import deleted_for_room, missing_members, tier_problem
from imago_cli.doctor.checks import CheckFinding, CheckLevel
from imago_cli.output import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def check_shards(addresses: Iterable[tuple[str, int]]) -> Iterator[CheckFinding]:
    """Each shard has a master, and its members are in sync and apart from each other."""
    for host, port in addresses:
        if snapshot := cluster_at(host, port):
            yield from shard_findings(snapshot)
            return


def shard_findings(snapshot: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """Findings of one snapshot."""
    for path, reason in snapshot["refused"].items():
        yield CheckFinding(
            "registry",
            CheckLevel.WARNING,
            f"{path} cannot be understood: {reason}",
            "write what docs/formats/znodes.md says, or delete the node",
        )
    for shard in snapshot["shards"]:
        yield from _shard(shard)
        if went := deleted_for_room(shard):
            cure = "give the disk room, or shorten the retention: docs/runbook.md, A disk runs full"
            yield CheckFinding(shard["name"], CheckLevel.NOTE, went, cure)
        if problem := tier_problem(shard):
            cure = "old messages cannot be read, and the disk keeps what should go: docs/tiered.md"
            yield CheckFinding(shard["name"], CheckLevel.ERROR, f"its bucket: {problem}", cure)
        if shard["master"] is not None and (missing := missing_members(snapshot, shard)):
            yield CheckFinding(
                shard["name"],
                CheckLevel.WARNING,
                missing,
                "start what is stopped, and read its log: fewer members survive fewer losses",
            )


def _shard(shard: Mapping[str, Any]) -> Iterator[CheckFinding]:
    name, said, state = shard["name"], shard["explain"], shard["inSync"]
    if shard["master"] is None:
        message = f"{said['why']}; it waits for {said['waitsFor']}"
        yield CheckFinding(name, CheckLevel.ERROR, message, said["next"])
        return
    if shard["unclean"]:
        yield CheckFinding(
            name,
            CheckLevel.WARNING,
            f"the election of epoch {shard['epoch']} may have lost acknowledged messages",
            "compare with what producers have on record",
        )
    if any(member.get("stalled") for member in shard["members"]):
        yield CheckFinding(name, CheckLevel.ERROR, f"{said['why']}", said["next"])
    elif said["waitsFor"]:
        yield CheckFinding(
            name, CheckLevel.WARNING, f"{said['why']}; it waits for {said['waitsFor']}"
        )
    else:
        count = f", {counted(len(state), 'member')} in sync" if state else ""
        yield CheckFinding(name, CheckLevel.OK, f"led by {_master(shard)}{count}")
    yield from _members(name, shard)
    zones = [member["zone"] for member in shard["members"] if member["zone"]]
    if len(zones) > len(set(zones)):
        yield CheckFinding(
            name,
            CheckLevel.WARNING,
            f"several members are in one zone: {', '.join(sorted(zones))}",
            "a zone that fails takes them all: move one, or set broker.zone right",
        )


def _members(name: str, shard: Mapping[str, Any]) -> Iterator[CheckFinding]:
    for member in shard["members"]:
        place = f"replica {member['replica']} ({member['uuid']})"
        if member.get("problem"):
            yield CheckFinding(
                name,
                CheckLevel.ERROR,
                f"{place} stands still: {member['problem']}",
                "it begins an empty log by itself once the others have all that was acknowledged;"
                " its /readyz says what it waits for",
            )
        if member.get("damaged"):
            yield CheckFinding(
                name,
                CheckLevel.ERROR,
                f"a part of the log of {place} is out of service",
                "it is healed from the other members where one has the bytes, and leads only where"
                " no whole log can; docs/admin.md, Damage, says what to do where that takes long",
            )


def _master(shard: Mapping[str, Any]) -> str:
    for member in shard["members"]:
        if member["uuid"] == shard["master"]:
            return f"replica {member['replica']} at {member['rocketmq']}"
    return str(shard["master"])
