"""`imago client`: who is connected to the cluster, and an end to that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.clusters.missing import Partial, all_pages, end_with_told
from imago_cli.connect import AsJson, Yes, confirm, nearest
from imago_cli.exits import CommandError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import counted, print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATH: Final = "/admin/v1/cluster/clients"
TOLD_MAX: Final = 5
"""Clients that are named before their connections are closed."""
_COLUMNS: Final = (
    *("client", "user", "address", "shard", "protocol", "TLS"),
    *("language", "version", "consumes as", "produces as", "topics"),
)


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Show who is connected; close connections.")
    group.add("list", list_clients)
    group.add("kill", kill)
    root.add("client", group)


def list_clients(
    topic: Annotated[
        str | None, Option(help="Those alone that read it, or send to it through an SDK.")
    ] = None,
    group: Annotated[str | None, Option(help="Those alone that consume or produce in it.")] = None,
    user: Annotated[str | None, Option(help="Those alone that are this user.")] = None,
    admin: Admin = DEFAULT_ADMIN,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """List the clients that are connected to any broker: as whom, how, and what for.

    A client of RocketMQ's says what it is once it consumes or has sent; until then, and for
    MetaQ's clients always, its address stands for its name. Topics are those that it reads: a
    producer of RocketMQ's names none but through the SDKs. Connections to name services alone are
    not shown. Exit code 1: a shard or a member did not answer.
    """
    found, missing = _clients(admin, {"topic": topic, "group": group, "user": user})
    if as_json:
        print_json({"clients": found, "missing": missing})
    else:
        print_clients(found)
    end_with_told(missing, partial=partial)


def kill(
    client: Annotated[str, Argument(help="Its name or address, as `client list` shows it.")],
    admin: Admin = DEFAULT_ADMIN,
    yes: Yes = False,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Close a client's connections to all brokers, at once: it may connect again.

    Its address closes one of them alone. Clients that share a connection lose it together.

    What it had sent and got no answer to may be stored, or not: clients send it once more. Needs
    the right to run the cluster. Exit code 1: a shard or a member did not answer.
    """
    found, missing = _clients(admin, {"client": client})
    if not found:
        end_with_told(missing, partial=False, lacks="not searched")
        known = [one["name"] for one in _clients(admin, {})[0]]
        raise CommandError(
            f"no client {client} is connected", cure=nearest(client, known) or "imago client list"
        )
    confirm(f"Close {_told_all(found)}?", yes=yes)
    answer = ask(admin, f"{PATH}/{quote(client, safe='')}", method="DELETE")
    if as_json:
        print_json(answer)
    else:
        for one in answer["items"]:
            where = f"{one['shard']}, replica {one['replica']}"
            say(f"{where}: {counted(one['connections'], 'connection')} closed")
        say("it may connect again; `imago user deny` takes a user's rights away")
    end_with_told(answer["missing"], partial=partial, lacks="not closed")


def _clients(
    admin: str, wanted: Mapping[str, str | None]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return all clients that are wanted, and what was missing."""
    query = {name: value for name, value in wanted.items() if value is not None}
    return all_pages(lambda path: ask(admin, path), PATH, query)


def print_clients(found: Sequence[Mapping[str, Any]]) -> None:
    """Print a row for each connection of these clients, and how many are not shown."""
    print_table("", _COLUMNS, [_cells(one, each) for one in found for each in one["connections"]])
    for one in found:
        if (more := one["connectionCount"] - len(one["connections"])) > 0:
            say(f"{one['name']}: {counted(more, 'connection')} more")


def _cells(client: Mapping[str, Any], connection: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the row of a connection: what `_COLUMNS` names."""
    return (
        client["name"],
        ", ".join(client["users"]),
        connection["peer"],
        f"{connection['shard']}/{connection['replica']}",
        connection["protocol"],
        "yes" if connection["tls"] else "no",
        client["language"],
        client["version"],
        *(", ".join(client[key]) for key in ("consumerGroups", "producerGroups", "topics")),
    )


def _told_all(found: Sequence[Mapping[str, Any]]) -> str:
    """Return what is about to end for whom, in words."""
    parts = [_told(one) for one in found[:TOLD_MAX]]
    shared = {
        name: None
        for one in found
        for each in one["connections"]
        for name in each.get("sharedWith", ())
    }
    names = [name for name in shared if name not in {one["name"] for one in found}]
    more = len(found) - len(parts)
    told = " and ".join([*parts, counted(more, "other client")] if more else parts)
    if not names:
        return told
    first = ", ".join(names[:TOLD_MAX]) + (", …" if len(names) > TOLD_MAX else "")
    return f"{told}, which {first} {'shares' if len(names) == 1 else 'share'}"


def _told(client: Mapping[str, Any]) -> str:
    """Return what is about to end, in words."""
    users = f" of {', '.join(client['users'])}" if client["users"] else ""
    count = counted(client["connectionCount"], "connection")
    groups = [*client["consumerGroups"], *client["producerGroups"]]
    there = f", in the groups {', '.join(groups)}" if groups else ""
    return f"{count} of client {client['name']}{users}{there}"
