"""`imago message scheduled`, `half`, `recall`: messages that nobody reads yet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.clusters.missing import Partial, end_with_told
from imago_cli.connect import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, confirm, connected
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Argument, Option
from imago_cli.output import counted, print_json, print_table, say
from imago_cli.times import TIME_HELP, moment, time_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATH: Final = "/admin/v1/cluster"
Count = Annotated[int, Option(least=1, most=200, help="At most so many.")]


def scheduled(
    topic: Annotated[str | None, Option(help="Those alone that will be in this topic.")] = None,
    from_time: Annotated[
        str | None, Option("--from", help=f"Those that are due from then on: {TIME_HELP}.")
    ] = None,
    count: Count = 20,
    admin: Admin = DEFAULT_ADMIN,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """List the messages that wait for their time, those first that are due first.

    Those of delay levels, groups' retries among them, and those with a time of their own, which
    `message recall` takes back. Of all topics: needs the right to run the cluster. Exit code 1: a
    shard is away.
    """
    query = {"limit": str(count)} | ({"topic": topic} if topic else {})
    if from_time is not None:
        try:
            query["from"] = str(time_of(from_time, time.time_ns() // 1_000_000))
        except ValueError as error:
            raise CommandUsageError(f"--from {from_time}: no time", cure=TIME_HELP) from error
    found, answer = _found("scheduled", query, admin, by="deliverTime")
    columns = ("due", "topic", "shard", "queue", "id", "keys", "tags", "waits by", "stored")
    rows = [
        (
            moment(one["deliverTime"]),
            *(one[key] for key in ("topic", "shard", "queue", "uniqueId", "keys", "tags")),
            f"level {one['level']}" if one["level"] else "time",
            moment(one["storeTime"]),
        )
        for one in found[:count]
    ]
    _print(found, count, answer, columns, rows, as_json=as_json)
    end_with_told(answer["missing"], partial=partial)


def half(
    topic: Annotated[
        str | None, Option(help="Those alone that a commit puts into this topic.")
    ] = None,
    group: Annotated[str | None, Option(help="Those alone of this group of producers.")] = None,
    count: Count = 20,
    admin: Admin = DEFAULT_ADMIN,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """List the messages of transactions that nobody has ended, the oldest first.

    Brokers ask their producers, so often as `checks` says until now. Of all topics: needs the right
    to run the cluster. MetaQ's transactions: `imago metaq transactions list`. Exit code 1: a shard
    is away.
    """
    named = {"topic": topic, "group": group}
    query = {"limit": str(count)} | {key: value for key, value in named.items() if value}
    found, answer = _found("halves", query, admin, by="storeTime")
    columns = ("age s", "topic", "shard", "queue", "id", "keys", "producer group", "checks")
    keys = ("ageSeconds", *columns[1:4], "uniqueId", "keys", "producerGroup", "checks")
    rows = [tuple(one[key] for key in keys) for one in found[:count]]
    _print(found, count, answer, columns, rows, as_json=as_json)
    end_with_told(answer["missing"], partial=partial)


def recall(
    message_id: Annotated[
        str, Argument(metavar="ID", help="Its unique id, as `scheduled` shows it.")
    ],
    admin: Admin = DEFAULT_ADMIN,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Yes = False,
) -> None:
    """Take a message back that waits for a time of its own: it is never delivered.

    Needs the right to run the cluster, and to publish in its topic. Those of delay levels cannot
    be taken back.
    """
    found, answer = _found("scheduled", {"id": message_id}, admin, by="deliverTime")
    cut = any(each["cut"] for each in answer["items"])
    handles = [one["recallHandle"] for one in found if one["recallHandle"]]
    if not found:
        end_with_told(answer["missing"], partial=False, lacks="not searched")
        if cut:
            raise CommandError(
                f"whether {message_id} waits is not known: more messages have this id than brokers"
                " look at",
                cure="`imago message scheduled --from TIME` lists those of its time",
            )
        raise CommandError(
            f"no message {message_id} waits for its time",
            cure="`imago message scheduled` lists those that do; `imago message get` finds others",
        )
    if not handles:
        raise CommandError(
            f"the message waits by delay level {found[0]['level']}, and only those with a time of"
            " their own can be taken back",
            cure="have its consumers pass over it, or send the next ones with a time of their own",
        )
    first = found[0]
    when = moment(first["deliverTime"])
    confirm(f"Never deliver {message_id}, due in topic {first['topic']} at {when}?", yes=yes)
    with connected(bootstrap) as client:
        for handle in dict.fromkeys(handles):
            client.producer().recall(handle)
    say(f"taken back: {message_id}")
    if cut:
        say("more of this id may wait: repeat the command")
    end_with_told(answer["missing"], partial=False, lacks="not searched")


def _found(
    what: str, query: Mapping[str, str], admin: str, *, by: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the messages of all shards in one order, and the answer itself."""
    answer = ask(admin, f"{_PATH}/{what}?{urlencode(query)}")
    shards = answer["items"]
    found = [one | {"shard": each["shard"]} for each in shards for one in each["messages"]]
    return sorted(found, key=lambda one: (one[by], one["shard"])), answer


def _print(
    found: list[dict[str, Any]],
    count: int,
    answer: Mapping[str, Any],
    columns: tuple[str, ...],
    rows: list[tuple[object, ...]],
    *,
    as_json: bool,
) -> None:
    waiting = sum(each["waiting"] for each in answer["items"])
    cut = len(found) > count or any(each["cut"] for each in answer["items"])
    if as_json:
        shown = {"messages": found[:count], "waiting": waiting, "cut": cut}
        print_json(shown | {"missing": answer["missing"]})
        return
    print_table("", columns, rows)
    say(
        f"{counted(waiting, 'message')} waiting in all, about" + (": there are more" if cut else "")
    )
