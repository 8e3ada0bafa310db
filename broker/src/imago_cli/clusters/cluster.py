"""`imago cluster`: who leads each shard, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, NO_REGISTRY, Admin, ask
from imago_cli.clusters.features import features, remark
from imago_cli.clusters.report import report
from imago_cli.clusters.top import top
from imago_cli.connect import AsJson
from imago_cli.exits import CommandError, Exit
from imago_cli.line.declared import CommandGroup
from imago_cli.output import counted, print_json, print_line, print_table, role_name
from imago_cli.times import second

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COLUMNS = ("shard", "replica", "role", "in sync", "lag bytes", "lag ms", "RocketMQ", "slot", "uuid")

UUID_CHARS = 8
"""Of a uuid a person needs its beginning, and commands take it; --json has the whole."""
ASK_SECONDS_MAX = 2.0
"""Of a member that is asked what keeps it; it may be the one that does not answer."""


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Show who leads each shard, why, and what members do.")
    group.add("status", status)
    group.add("explain", explain)
    group.add("top", top)
    group.add("features", features)
    group.add("report", report)
    root.add("cluster", group)


def status(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Show all shards with their members, roles and lag.

    Exit code 1: a shard has no master, or refuses messages (its master's disk is full, or too few
    members are in sync), or the broker that is asked does not reach ZooKeeper.
    """
    cluster = ask(admin, "/admin/v1/cluster")
    if as_json:
        print_json(cluster)
    else:
        rows = [row for shard in cluster["shards"] for row in member_rows(shard)]
        print_table(f"cluster {cluster['cluster']}", COLUMNS, rows)
        leaderless = [shard["name"] for shard in cluster["shards"] if shard["master"] is None]
        for name in leaderless:
            print_line(f"{name} has no master: imago cluster explain")
        if endpoints := sdk_endpoints(cluster):
            print_line(f"RocketMQ 5's SDKs: endpoints {endpoints}")
        for line in remarks(cluster):
            print_line(line)
    serves = all(_takes_messages(cluster, shard) for shard in cluster["shards"])
    known = cluster["zooKeeperConnected"]
    sys.exit(Exit.DONE if serves and known else Exit.FAILED)


def explain(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Explain for each shard who leads it and why, what it waits for and what comes next."""
    cluster = ask(admin, "/admin/v1/cluster")
    if as_json:
        print_json({shard["name"]: shard["explain"] for shard in cluster["shards"]})
        return
    for shard in cluster["shards"]:
        said = shard["explain"]
        print_line(said["why"])
        if said["waitsFor"]:
            print_line(f"  waits for: {said['waitsFor']}")
        if said["next"]:
            print_line(f"  next: {said['next']}")
        for line in hindrances(shard):
            print_line(f"  {line}")
    for line in remarks(cluster):
        print_line(line)


def hindrances(shard: Mapping[str, Any]) -> Iterator[str]:
    """Return what keeps each live member that is not in sync, in its own words."""
    for member in shard["members"]:
        if member["inSync"]:
            continue
        place = f"replica {member['replica']} ({member['rocketmq']})"
        try:
            told = ask(member["admin"], "/admin/v1/status", found=True, seconds_max=ASK_SECONDS_MAX)
        except CommandError as error:
            yield f"{place}: {error}"
            continue
        if told["waitsFor"]:
            yield f"{place}: {told['waitsFor']}"
        if not told["disk"]["writable"]:
            yield f"{place}: its disk is full, {told['disk']['usedShare']:.0%} are used"


def member_rows(shard: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Return one row per live member, and one for each that is missing."""
    alive = set()
    for member in shard["members"]:
        alive.add(member["uuid"])
        yield (
            shard["name"],
            member["replica"],
            role_name(member["role"]),
            "yes" if member["inSync"] else "no",
            shown(member["lagBytes"]),
            shown(member["lagMs"]),
            member["rocketmq"],
            member.get("slot", member["replica"]),
            member["uuid"][:UUID_CHARS],
        )
    for uuid in shard["inSync"] or ():
        if uuid not in alive:
            replica = shard["known"].get(uuid, "?")
            yield (shard["name"], replica, "gone", "yes", "", "", "", "", uuid[:UUID_CHARS])


def sdk_endpoints(cluster: Mapping[str, Any]) -> str:
    """Return what RocketMQ 5's SDKs are told as their endpoints; empty: they are not served."""
    members = [member for shard in cluster["shards"] for member in shard["members"]]
    return ";".join(member["grpc"] for member in members if member.get("grpc"))


def missing_members(cluster: Mapping[str, Any], shard: Mapping[str, Any]) -> str:
    """Return how many members of a shard are missing; empty: none."""
    wanted, there = cluster.get("replicas", 0), len(shard["members"])
    if shard.get("drained") or there >= wanted:
        return ""
    slots = {member.get("slot", -1) for member in shard["members"]}
    absent = [str(slot) for slot in range(wanted) if slot not in slots]
    named = f"; slot {', '.join(absent)} is empty" if len(absent) == wanted - there else ""
    return f"{there} of {wanted} members are there{named}"


def deleted_for_room(shard: Mapping[str, Any]) -> str:
    """Return what went last of a shard's log for want of room; empty: nothing."""
    went = shard.get("deletedForRoom")
    if not went:
        return ""
    return (
        f"{counted(went['messages'], 'message')} (log offsets {went['from']} to {went['to']}) went"
        f" for want of room before they had expired, the last at {second(went['at'])}"
    )


def tier_line(shard: Mapping[str, Any]) -> str:
    """Return what a shard has in a bucket; empty: it has none."""
    tier = shard.get("tier")
    if not tier:
        return ""
    held = f"{counted(tier['files'], 'file')}, {tier['bytes'] >> 20} MiB, in {tier['url']}"
    waiting = tier["waitingBytes"]
    return held + (f"; {waiting >> 20} MiB wait to go there" if waiting else "")


def tier_problem(shard: Mapping[str, Any]) -> str:
    """Return what is wrong with a shard's bucket; empty: nothing."""
    tier = shard.get("tier")
    return str(tier["problem"] or tier["refused"]) if tier else ""


def shown(value: object) -> object:
    """Return a number, or nothing while it is unknown."""
    return "" if value is None else value


def _few_in_sync(cluster: Mapping[str, Any], shard: Mapping[str, Any]) -> str:
    """Return what the in-sync set is too small for; empty: nothing."""
    in_sync, least = shard["inSync"], cluster.get("minInSync", 0)
    if shard["master"] is None or in_sync is None or len(in_sync) >= least:
        return ""
    there = f"{counted(len(in_sync), 'member')} in sync, {least} are needed"
    return f"{there}, so replicated messages are refused"


def _takes_messages(cluster: Mapping[str, Any], shard: Mapping[str, Any]) -> bool:
    """Return whether a shard has a master, with room, and as many members in sync as it needs."""
    full = [member["uuid"] for member in shard["members"] if member.get("full")]
    has_room = shard["master"] is not None and shard["master"] not in full
    return has_room and not _few_in_sync(cluster, shard)


def _shard_remarks(cluster: Mapping[str, Any], shard: Mapping[str, Any]) -> Iterator[str]:
    """Yield what follows the shard's name."""
    for member in shard["members"]:
        if member.get("full"):
            refuses = ", so it refuses messages" if member["uuid"] == shard["master"] else ""
            yield f" replica {member['replica']}: its disk is full{refuses}"
    if few := _few_in_sync(cluster, shard):
        yield f": {few}"
    if held := tier_line(shard):
        yield f" has {held}"
    if problem := tier_problem(shard):
        yield f": its bucket: {problem}"
    marks = [mark for mark in ("cordoned", "draining", "drained") if shard.get(mark)]
    if marks:
        yield f" is {' and '.join(marks)}"
    if missing := missing_members(cluster, shard):
        yield f": {missing}"


def remarks(cluster: Mapping[str, Any]) -> Iterator[str]:
    """What a person should know besides the table."""
    for shard in cluster["shards"]:
        yield from (f"{shard['name']}{each}" for each in _shard_remarks(cluster, shard))
    if raised := remark(cluster):
        yield raised
    if not cluster["zooKeeperConnected"]:
        yield NO_REGISTRY
    for path, reason in cluster["refused"].items():
        yield f"{path} cannot be understood ({reason}); its last good content counts"
