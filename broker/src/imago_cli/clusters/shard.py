"""`imago shard`: show shards, hand leadership over, force an election, drain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from imago_cli.clusters.admin_http import (
    DEFAULT_ADMIN,
    Admin,
    CallRefusedError,
    ask,
    cluster_to_change,
)
from imago_cli.clusters.cluster import (
    COLUMNS,
    deleted_for_room,
    member_rows,
    tier_line,
    tier_problem,
)
from imago_cli.clusters.member_names import member_named
from imago_cli.clusters.moves import ShardName, attach_to_shard, end_unless_seen, find_shard
from imago_cli.connect import AsJson, Yes, confirm
from imago_cli.exits import CommandError
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import print_json, print_line, print_table, say
from imago_cli.times import second

if TYPE_CHECKING:
    from collections.abc import Mapping

Member = Annotated[
    str | None,
    Option("--to", metavar="MEMBER", help="Slot, replica number, name or uuid's beginning."),
]


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Show shards, hand leadership over, force an election, drain.")
    group.add("list", list_shards)
    group.add("show", show)
    group.add("handover", handover)
    group.add("elect", elect)
    attach_to_shard(group)
    root.add("shard", group)


def list_shards(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """List the shards: master, epoch, members in sync, last election."""
    cluster = ask(admin, "/admin/v1/cluster")
    if as_json:
        print_json(cluster["shards"])
    else:
        _print_listed(cluster)
    end_unless_seen(cluster)


def _print_listed(cluster: Mapping[str, Any]) -> None:
    rows = [
        (
            shard["name"],
            _master(shard),
            _or_none(shard["epoch"]),
            f"{len(shard['inSync'] or shard['members'])} of {cluster.get('replicas', '?')}",
            _last_election(shard),
        )
        for shard in cluster["shards"]
    ]
    print_table("", ("shard", "master", "epoch", "in sync", "last election"), rows)


def show(shard: ShardName, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Show one shard: members with lag in bytes and time, elections with their causes."""
    cluster = ask(admin, "/admin/v1/cluster")
    found = find_shard(cluster, shard)
    if as_json:
        print_json(found)
    else:
        _print_shown(found)
    end_unless_seen(cluster)


def _print_shown(found: Mapping[str, Any]) -> None:
    print_table(f"{found['name']}, epoch {_or_none(found['epoch'])}", COLUMNS, member_rows(found))
    rows = [
        (one["epoch"], second(one["at"]), _name(found, one["leader"]), one["cause"], _lossy(one))
        for one in found["elections"]
    ]
    if rows:
        print_table("elections", ("epoch", "when", "leader", "cause", ""), rows)
    told = (deleted_for_room(found), tier_line(found), tier_problem(found))
    for line in filter(None, told):
        print_line(line)
    print_line(found["explain"]["why"])


def handover(
    shard: ShardName, to: Member = None, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False
) -> None:
    """Hand leadership to another member, or to the best."""
    found = find_shard(cluster_to_change(admin), shard)
    master = next((m for m in found["members"] if m["uuid"] == found["master"]), None)
    if master is None:
        raise CommandError(
            f"{found['name']} has no master to hand over", cure="imago cluster explain"
        )
    body = _request(master, found)
    if to is not None:
        body["target"] = member_named(found, to)["uuid"]
    if body.get("target") == master["uuid"]:
        raise CommandError(f"{found['name']} is led by {_master(found)}", cure="nothing to do")
    if len(found["members"]) == 1:
        raise CommandError(
            f"{found['name']} has no other live member",
            cure="start another one, such as with imago up --replicas",
        )
    answer = ask(master["admin"], "/admin/v1/handover", body, found=True)
    leader = answer.get("leader")
    to_whom = f" to {_name(found, leader)}" if leader else ""
    _print(answer, f"handed over{to_whom}", as_json=as_json)


def elect(
    shard: ShardName,
    to: Member = None,
    allow_data_loss: Annotated[
        bool,
        Option("--allow-data-loss", help="Let a member lead that may lack messages."),
    ] = False,
    admin: Admin = DEFAULT_ADMIN,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Elect a leader for a shard without master, by default the member with the longest log.

    Without --allow-data-loss only a member with every acknowledged message may lead. With it, the
    shard's history records that the election may have lost messages.
    """
    found = find_shard(cluster_to_change(admin), shard)
    if found["master"] is not None:
        raise CommandError(f"{found['name']} is led by {_master(found)}", cure="nothing to do")
    if not found["members"]:
        raise CommandError(f"{found['name']} has no live member", cure=found["explain"]["next"])
    chosen = member_named(found, to) if to is not None else max(found["members"], key=_log)
    if allow_data_loss:
        name = f"replica {chosen['replica']} ({chosen['uuid']})"
        confirm(f"{name} may lack acknowledged messages. Let it lead {found['name']}?", yes=yes)
    body = _request(chosen, found) | {"allowDataLoss": allow_data_loss}
    try:
        answer = ask(chosen["admin"], "/admin/v1/elect", body, found=True)
    except CallRefusedError as error:
        if error.reason != "not_elected":
            raise
        cure = found["explain"]["next"] or error.cure
        raise CommandError(_by_number(found, str(error)), cure=cure) from error
    _print(answer, "elected", as_json=as_json)


def _by_number(shard: Mapping[str, Any], text: str) -> str:
    """Return a broker's words with the replica's number in place of each uuid."""
    for uuid, number in shard["known"].items():
        text = text.replace(uuid, f"replica {number}")
    return text


def _request(member: Mapping[str, Any], shard: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of this broker and of no other, in this epoch and in no later one."""
    body = {"brokerId": member["uuid"], "requestId": uuid4().hex}
    return body if shard["epoch"] is None else body | {"epoch": shard["epoch"]}


def _print(answer: Mapping[str, Any], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        say(f"{answer['shard']}: {what}, epoch {answer['epoch']}")


def _log(member: Mapping[str, Any]) -> tuple[int, int, bool, str]:
    """How members compare, as they decide it: of equal logs a whole one, then the higher uuid."""
    return (
        member["logEpoch"], member["logEnd"], not member.get("damaged", False), member["uuid"],
    )  # fmt: skip


def _master(shard: Mapping[str, Any]) -> str:
    return _name(shard, shard["master"]) if shard["master"] else "none"


def _name(shard: Mapping[str, Any], uuid: str) -> str:
    at = next((m["rocketmq"] for m in shard["members"] if m["uuid"] == uuid), "gone")
    return f"replica {shard['known'].get(uuid, '?')} ({at})"


def _last_election(shard: Mapping[str, Any]) -> str:
    if not shard["elections"]:
        return ""
    last = shard["elections"][0]
    lossy = f", {_lossy(last)}" if last["unclean"] else ""
    return f"{second(last['at'])}: {last['cause']}{lossy}"


def _lossy(election: Mapping[str, Any]) -> str:
    return "may have lost data" if election["unclean"] else ""


def _or_none(value: object) -> object:
    return "none" if value is None else value
