"""`imago config get` and `set`: the settings that running brokers have, on all of them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

from imago_cli.clusters.admin_http import (
    DEFAULT_ADMIN,
    Admin,
    CallRefusedError,
    ask,
    cluster_to_change,
)
from imago_cli.clusters.missing import end_with_told
from imago_cli.connect import AsJson, nearest
from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.line.declared import Argument, Option
from imago_cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PATH = "/admin/v1/config"


def get(
    keys: Annotated[
        list[str] | None, Argument(help="section.key, or a section; all without any.")
    ] = None,
    changed: Annotated[
        bool, Option("--changed", help="Those alone that are not as they are by default.")
    ] = False,
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Show the settings of all running brokers: value, default, and whether `set --live` takes it.

    Where brokers differ each value is shown with those that have it. Exit code 1: a broker did not
    answer.
    """
    values, about, missing = _of_all(admin)
    wanted = [key for key in about if not keys or any(_is_of(key, each) for each in keys)]
    for each in keys or ():
        if not any(_is_of(key, each) for key in about):
            raise CommandUsageError(
                f"there is no setting {each}", cure=nearest(each, about) or "imago config get"
            )
    rows = []
    for key in wanted:
        told = about[key]
        by_value: dict[str, list[str]] = {}
        for broker, settings in values.items():
            by_value.setdefault(_text(settings.get(key)), []).append(broker)
        if changed and set(by_value) == {_text(told["default"])}:
            continue
        for value, brokers in by_value.items():
            who = "all" if len(by_value) == 1 else ", ".join(brokers)
            rows.append((key, value, who, _text(told["default"]), told["dynamic"]))
    if as_json:
        names = ("key", "value", "brokers", "default", "live")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        shown = [(*row[:-1], "live" if row[-1] else "restart") for row in rows]
        print_table("", ("setting", "value", "brokers", "default", "changes"), shown)
    end_with_told(missing, partial=False)


def set_live(
    assignments: Annotated[list[str], Argument(help="section.key=value.")],
    live: Annotated[
        bool, Option("--live", help="In force at once, until the broker starts again.")
    ] = False,
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Change settings of all running brokers, at once and until they start again.

    What is to stay stands in their configuration files as well. Exit code 1: a broker did not take
    it, or did not answer.
    """
    wanted = dict(_assigned(text) for text in assignments)
    if not live:
        raise CommandUsageError(
            "nothing but --live: files of brokers are theirs",
            cure="add --live, and write what is to stay into the file that `imago broker` reads",
        )
    cluster = cluster_to_change(admin)
    about = {item["key"]: item for item in ask(admin, PATH)["items"]}
    for key in wanted:
        _check_live(key, about)
    done, failed = _told(cluster, wanted)
    if as_json:
        print_json({"changed": sorted(wanted), "brokers": done, "failed": failed})
    else:
        say(f"{', '.join(sorted(wanted))}: changed on {', '.join(done) or 'no broker'}")
    for name, why in failed.items():
        say(f"not changed on {name}: {why}")
    if failed:
        sys.exit(Exit.FAILED)
    end_with_told(_away(cluster), partial=False, lacks="not changed")


def _told(cluster: Mapping[str, Any], wanted: object) -> tuple[list[str], dict[str, str]]:
    """Tell every broker; return which of them took it, and why the others did not."""
    done: list[str] = []
    failed: dict[str, str] = {}
    for name, address in _members(cluster):
        try:
            ask(address, PATH, wanted, method="PATCH", found=True)
        except CallRefusedError as error:
            if not done and not failed:
                raise  # all of them say the same of a wrong value
            failed[name] = f"{error.message} {error.cure}".strip()
        except CommandError as error:
            failed[name] = f"{error.message} {error.cure}".strip()
        else:
            done.append(name)
    return done, failed


def _check_live(key: str, about: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise CommandUsageError for a setting that there is not, or that a start alone changes."""
    if key not in about:
        raise CommandUsageError(
            f"there is no setting {key}", cure=nearest(key, about) or "imago config get"
        )
    if not about[key]["dynamic"]:
        raise CommandUsageError(
            f"{key} changes at a broker's start alone",
            cure="set it in the brokers' configuration files and restart one after the other",
        )


def _assigned(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise CommandUsageError(f"{text}: is not section.key=value")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _of_all(
    admin: str,
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return each broker's values, what is told of each key, and who did not answer."""
    cluster = ask(admin, "/admin/v1/cluster")
    values: dict[str, dict[str, Any]] = {}
    about: dict[str, dict[str, Any]] = {}
    missing = _away(cluster)
    for name, address in _members(cluster):
        try:
            items = ask(address, PATH, found=True)["items"]
        except CommandError as error:
            missing.append({"shard": name, "since": None, "why": error.message})
            continue
        values[name] = {item["key"]: item["value"] for item in items}
        about |= {item["key"]: item for item in items}
    return values, about, missing


def _away(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    shards: Sequence[Mapping[str, Any]] = cluster["shards"]
    return [
        {"shard": shard["name"], "since": None, "why": "no member of it is alive"}
        for shard in shards
        if not shard["members"]
    ]


def _members(cluster: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for shard in cluster["shards"]:
        for member in shard["members"]:
            yield f"{shard['name']}/{member['replica']}", member["admin"]


def _is_of(key: str, wanted: str) -> bool:
    return key == wanted or key.startswith(f"{wanted}.")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
