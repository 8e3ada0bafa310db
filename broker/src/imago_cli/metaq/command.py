"""`imago metaq`: what MetaQ's scripts and tools do, over a broker's admin interface."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.connect import AsJson, Yes, confirm
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.metaq import offsets, slave, transactions, tree
from imago_cli.output import print_json, print_line, say

Topic = Annotated[str, Argument(help="The topic.")]
First = Annotated[int, Option("--start", least=0, help="First partition.")]
Last = Annotated[int, Option("--end", least=0, help="Last partition.")]

_PATH = "/admin/v1/metaq"


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup(
        "MetaQ's own tools: statistics, reload, partitions, ZooKeeper's tree.",
    )
    for name, command in (
        ("show", show),
        ("stats", stats),
        ("config", config),
        ("reload", reload),
        ("close-partitions", close_partitions),
        ("open-partitions", open_partitions),
        ("delete-partitions", delete_partitions),
        ("checkpoint", checkpoint),
        ("stop", stop),
    ):
        group.add(name, command)
    offsets.attach(group)
    slave.attach(group)
    tree.attach(group)
    transactions.attach(group)
    root.add("metaq", group)


def show(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Show how MetaQ sees a broker: its id, closed partitions, patterns, configuration."""
    found = ask(admin, _PATH)
    if as_json:
        print_json(found)
        return
    print_line(f"broker id {found['brokerId']}")
    print_line(f"server.ini {found['serverIni'] or '-'} checksum {found['configChecksum']}")
    for pattern in found["patterns"]:
        print_line(f"pattern {pattern}")
    for topic, numbers in found["closed"].items():
        print_line(f"closed {topic} {','.join(map(str, numbers))}")


def stats(
    item: Annotated[str, Argument(help="help, topics, offsets, realtime, reset, or a topic.")] = "",
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Show what `stats` answers MetaQ's clients."""
    found = ask(admin, f"{_PATH}/stats?item={quote(item, safe='')}")
    if as_json:
        print_json(found)
        return
    for line in found["lines"]:
        print_line(line)


def config(admin: Admin = DEFAULT_ADMIN) -> None:
    """Show the configuration in force as a server.ini."""
    print_line(ask(admin, f"{_PATH}/config")["text"].rstrip())


def reload(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Have a broker read its configuration again; a wrong one is refused whole."""
    found = ask(admin, f"{_PATH}/reload", {})
    if as_json:
        print_json(found)
        return
    for key, what in (
        ("applied", "in force"),
        ("needRestart", "needs a restart"),
        ("topics", "topic changed"),
        ("removed", "topic takes no more messages"),
    ):
        for name in found[key]:
            print_line(f"{what}: {name}")
    say(f"reloaded; checksum {found['configChecksum']}")


def close_partitions(
    topic: Topic, start: First, end: Last, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False
) -> None:
    """Refuse puts and gets of partitions (403) until they are opened or the broker ends."""
    _partitions(admin, topic, "close-partitions", {"first": start, "last": end}, as_json=as_json)


def open_partitions(topic: Topic, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Open all closed partitions of a topic."""
    _partitions(admin, topic, "open-partitions", {}, as_json=as_json)


def delete_partitions(
    topic: Topic,
    start: First,
    end: Last,
    admin: Admin = DEFAULT_ADMIN,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let MetaQ's clients find nothing of what closed partitions hold; positions go on.

    RocketMQ's clients read the messages until the log's retention takes them.
    """
    confirm(f"Delete the messages of {topic}, partitions {start} to {end}, for MetaQ?", yes=yes)
    body = {"first": start, "last": end}
    found = _ask_topic(admin, topic, "delete-partitions", body)
    if as_json:
        print_json(found)
        return
    for number, begin in found["begin"].items():
        print_line(f"{topic}-{number} begins at {begin}")


def checkpoint(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Have what was written on the device now."""
    found = ask(admin, f"{_PATH}/checkpoint", {})
    if as_json:
        print_json(found)
    else:
        print_line(f"log end {found['logEnd']}")


def stop(admin: Admin = DEFAULT_ADMIN, yes: Yes = False) -> None:
    """Stop a broker in order. A supervisor, as `imago up` is one, starts it again."""
    confirm(f"Stop the broker at {admin}?", yes=yes)
    ask(admin, f"{_PATH}/stop", {})
    say("stopping")


def _partitions(admin: str, topic: str, what: str, body: dict[str, int], *, as_json: bool) -> None:
    found = _ask_topic(admin, topic, what, body)
    if as_json:
        print_json(found)
    else:
        print_line(f"closed: {','.join(map(str, found['closed'])) or 'none'}")


def _ask_topic(admin: str, topic: str, what: str, body: dict[str, int]) -> dict[str, Any]:
    return ask(admin, f"{_PATH}/topics/{quote(topic, safe='')}/{what}", body)
