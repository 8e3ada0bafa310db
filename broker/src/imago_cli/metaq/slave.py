"""`imago metaq slave-status`, `slave-restart`: a broker that copies an original master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_cli.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.connect import AsJson  # noqa: TC001  typer reads the annotation
from imago_cli.output import print_json, print_line, say

if TYPE_CHECKING:
    import typer

_PATH = "/admin/v1/metaq/slave"


def attach(metaq: typer.Typer) -> None:
    """Add the commands."""
    metaq.command("slave-status")(status)
    metaq.command("slave-restart")(restart)


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
    for each in found["partitions"]:
        line = f"{each['topic']}-{each['partition']} {each['position']} {each['problem']}"
        print_line(line.rstrip())


def restart(admin: Admin = DEFAULT_ADMIN) -> None:
    """Have a broker connect to its original master anew."""
    ask(admin, f"{_PATH}/restart", {})
    say("restarted")
