"""`imago metaq slave-status`, `slave-restart`, `recover-offsets`: slaves of MetaQ's kinds."""

from __future__ import annotations

from typing import Annotated

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.connect import AsJson
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import print_json, print_line, say

_PATH = "/admin/v1/metaq/slave"


def attach(metaq: CommandGroup) -> None:
    """Add the commands."""
    metaq.add("slave-status", status)
    metaq.add("slave-restart", restart)
    metaq.add("recover-offsets", recover_offsets)


def status(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Show how a broker copies an original master, partition by partition."""
    found = ask(admin, _PATH)
    if as_json:
        print_json(found)
        return
    print_line(f"slave {found['slaveId']} of {found['master'] or '-'} as {found['group']}")
    print_line(f"copies: {'yes' if found['copies'] else 'no'} {found['problem']}".rstrip())
    for topic in found["leftOut"]:
        print_line(f"left out: {topic}")
    if found.get("configProblem"):  # an older broker does not say it
        print_line(f"settings: {found['configProblem']}")
    for each in found["partitions"]:
        line = f"{each['topic']}-{each['partition']} {each['position']} {each['problem']}"
        print_line(line.rstrip())


def restart(admin: Admin = DEFAULT_ADMIN) -> None:
    """Have a broker connect to its original master anew."""
    ask(admin, f"{_PATH}/restart", {})
    say("restarted")


def recover_offsets(
    apply: Annotated[bool, Option("--apply", help="Change them; else only show.")] = False,
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Have MetaQ's groups go on here behind the messages that they have had elsewhere.

    For a broker whose positions are not those of the master before it. Stop the groups first.
    """
    found = ask(admin, "/admin/v1/metaq/recover-offsets", {"dryRun": not apply})
    if as_json:
        print_json(found)
        return
    if not found["records"]:
        say("no group of MetaQ has an offset in a topic of this broker")
    for each in found["records"]:
        here = "not found" if each["here"] is None else each["here"]
        moved = " moved" if each["moved"] else ""
        where = f"{each['topic']}-{each['partition']}"
        print_line(f"{each['group']} {where} {each['position']} -> {here}{moved}")
