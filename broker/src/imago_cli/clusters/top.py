"""`imago cluster top`: what every member of every shard does now, again and again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.clusters.missing import Partial, end_with_told
from imago_cli.connect import AsJson
from imago_cli.line.declared import Option
from imago_cli.output import print_json, print_table, role_name, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH: Final = "/admin/v1/cluster/brokers"
COLUMNS: Final = (
    *("shard", "replica", "role", "in sync", "in/s", "out/s", "MB in/s", "MB out/s"),
    *("clients", "disk", "memory MB", "state"),
)
_CLEAR: Final = "\033[H\033[2J"
_NEW_RATE_S: Final = 1.0
"""Between the two looks of a run that shows one table."""


def top(
    admin: Admin = DEFAULT_ADMIN,
    every: Annotated[float, Option(least=0.5, most=3600, help="Seconds between two tables.")] = 2.0,
    count: Annotated[
        int | None,
        Option(least=1, help="So many tables.", show_default="1, on a terminal until Ctrl-C"),
    ] = None,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Show what each member takes and gives a second, its clients, disk and memory.

    Exit code 1: a shard or a member did not answer.
    """
    watched = sys.stdout.isatty() and not as_json
    left = count if count is not None or watched else 1
    apart = every if left != 1 else _NEW_RATE_S
    before, answer = _look(admin), None
    while left is None or left > 0:
        time.sleep(apart)
        now = _look(admin)
        rows = list(_rows(before, now))
        answer = now[1]
        if as_json:
            print_json({"members": rows, "missing": answer["missing"]})
        else:
            if watched:
                with writing():
                    sys.stdout.write(_CLEAR)
            print_table("", COLUMNS, [_cells(row) for row in rows])
        before, left = now, None if left is None else left - 1
    if answer is not None:
        end_with_told(answer["missing"], partial=partial)


def _look(admin: str) -> tuple[float, dict[str, Any]]:
    answer = ask(admin, PATH)
    return time.monotonic(), answer


def _rows(
    before: tuple[float, Mapping[str, Any]], now: tuple[float, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield what each member does; of one that began anew since, what it did since it began."""
    seconds = max(0.001, now[0] - before[0])
    was = {(one["uuid"], one["pid"]): one["counters"] for one in before[1]["items"]}
    for one in now[1]["items"]:
        leads = one["role"] == "master"
        counters, earlier = one["counters"], was.get((one["uuid"], one["pid"]), {})
        rates = {
            f"{name}PerSecond": round((value - earlier.get(name, 0)) / seconds, 1)
            for name, value in counters.items()
        }
        yield {
            "shard": one["shard"],
            "replica": one["replica"],
            "role": one["role"],
            "inSync": one["uuid"] in one["inSync"],
            **rates,
            "connections": sum(one["connections"].values()),
            "diskUsedShare": one["disk"]["usedShare"],
            "rssBytes": one["rssBytes"],
            "state": "; ".join(one["puts"]["reasons"]) if leads else one["waitsFor"] or "",
        }


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["shard"],
        row["replica"],
        role_name(row["role"]),
        "yes" if row["inSync"] else "no",
        round(row["messagesInPerSecond"]),
        round(row["messagesOutPerSecond"]),
        round(row["bytesInPerSecond"] / 1e6, 1),
        round(row["bytesOutPerSecond"] / 1e6, 1),
        row["connections"],
        f"{row['diskUsedShare']:.0%}",
        round(row["rssBytes"] / 1e6),
        row["state"],
    )
