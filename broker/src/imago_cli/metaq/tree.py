"""`imago metaq zk`: MetaQ's tree in ZooKeeper, as a broker reads it."""

from __future__ import annotations

from typing import Annotated

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.connect import AsJson
from imago_cli.exits import CommandError
from imago_cli.line.declared import Argument, CommandGroup
from imago_cli.output import counted, print_json, print_line, say

_PATH = "/admin/v1/metaq/tree"


def attach(group: CommandGroup) -> None:
    """Add the commands."""
    zk = CommandGroup("Show and check MetaQ's tree in ZooKeeper.")
    zk.add("dump", dump)
    zk.add("check", check)
    group.add("zk", zk)


def dump(
    under: Annotated[str, Argument(help="Only nodes whose path has this in it.")] = "",
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Print every node with its data; E stands for ephemeral."""
    nodes = [node for node in ask(admin, _PATH)["nodes"] if under in node["path"]]
    if as_json:
        print_json(nodes)
        return
    for node in nodes:
        print_line(f"{'E' if node['ephemeral'] else '-'} {node['path']} {node['data']}".rstrip())


def check(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Say what in the tree keeps clients from working, from any writer; exit code 1 if any."""
    found = ask(admin, _PATH)
    if as_json:
        print_json(found["findings"])
    else:
        for finding in found["findings"]:
            print_line(f"{finding['path']}: {finding['what']}")
    if found["findings"]:
        raise CommandError(
            f"{counted(len(found['findings']), 'node')} of MetaQ's tree would mislead clients",
            cure="restart the broker that wrote it, or delete what nobody writes any more",
        )
    say(f"{counted(len(found['nodes']), 'node')} below {found['root']}, nothing is wrong")
