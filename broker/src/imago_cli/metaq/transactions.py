"""`imago metaq transactions`: what is open, and decisions about what is prepared."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from urllib.parse import quote

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.clusters.missing import all_pages
from imago_cli.connect import AsJson, Yes, confirm
from imago_cli.line.declared import Argument, CommandGroup
from imago_cli.output import print_json, print_table, say

_PATH = "/admin/v1/metaq/transactions"
Key = Annotated[str, Argument(help="The transaction's name, XID:….")]


def attach(metaq: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Show transactions; decide about prepared ones.")
    group.add("list", list_transactions)
    group.add("commit", commit)
    group.add("rollback", roll_back)
    group.add("complete", complete)
    group.add("forget", forget)
    metaq.add("transactions", group)


def list_transactions(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """List the transactions of a shard that have not ended, and those decided about."""
    found, _ = all_pages(partial(ask, admin), _PATH)
    if as_json:
        print_json(found)
        return
    columns = ("key", "state", "messages", "age s", "connections")
    print_table(
        "",
        columns,
        [
            (
                one["key"],
                one["decided"] or one["state"],
                one["messages"],
                one["ageSeconds"],
                one["connections"],
            )
            for one in found
        ],
    )


def commit(key: Key, admin: Admin = DEFAULT_ADMIN, yes: Yes = False) -> None:
    """Put the messages of a prepared transaction, whatever its manager says later."""
    _decide(admin, key, "commit", yes=yes)


def roll_back(key: Key, admin: Admin = DEFAULT_ADMIN, yes: Yes = False) -> None:
    """Drop the messages of a prepared transaction, whatever its manager says later."""
    _decide(admin, key, "rollback", yes=yes)


def complete(key: Key, admin: Admin = DEFAULT_ADMIN, yes: Yes = False) -> None:
    """Drop a prepared transaction whose outcome somebody has seen to in another way."""
    _decide(admin, key, "complete", yes=yes)


def forget(key: Key, admin: Admin = DEFAULT_ADMIN) -> None:
    """Forget a decision, where no manager does."""
    _ask(admin, key, "forget")


def _decide(admin: str, key: str, decision: str, *, yes: bool) -> None:
    confirm(f"{decision} {key}?", yes=yes)
    _ask(admin, key, decision)


def _ask(admin: str, key: str, decision: str) -> None:
    ask(admin, f"{_PATH}/{quote(key, safe='')}/{decision}", {})
    say(f"{decision}: {key}")
