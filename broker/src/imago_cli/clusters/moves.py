"""`imago shard drain` and its like, `imago topic move` and `spread`: topics on other shards."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote
from uuid import uuid4

from imago_cli.clusters.admin_http import (
    DEFAULT_ADMIN,
    NO_REGISTRY,
    Admin,
    CallRefusedError,
    ask,
    cluster_to_change,
)
from imago_cli.connect import AsJson, Yes, confirm, unknown_topic
from imago_cli.exits import CommandError, Exit
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import counted, print_json, print_line, say
from imago_cli.times import second
from imago_wire.record_format.references import LIGHT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ShardName = Annotated[str, Argument(metavar="SHARD", help="Number or name, like 0 or shard-0.")]
Shards = Annotated[str | None, Option("--to", help="Shards, like shard-1,shard-2.")]
Wait = Annotated[bool, Option("--wait", help="Show the progress until the shard is drained.")]
LOOK_SECONDS = 2.0
_COUNTDOWN = re.compile(r"\d+ s more")
"""What alone is no news."""
NEWS_LOOKS_MAX = 3
"""How often a broker is asked that may not have heard of a drain yet."""


def attach_to_shard(group: CommandGroup) -> None:
    """Add the commands about shards."""
    group.add("drain", drain)
    group.add("undrain", undrain)
    group.add("drained", drained)
    group.add("remove", remove)


def drain(
    shard: ShardName, wait: Wait = False, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False
) -> None:
    """Move all topics of a shard elsewhere; consumers still read its stored messages."""
    found = find_shard(cluster_to_change(admin), shard)
    _ask_master(found, "/admin/v1/drain")
    if wait:
        _wait(admin, shard, as_json=as_json)
    else:
        # The others hear of it a little later.
        master = _master(found)["admin"]
        _report(find_shard(ask(master, "/admin/v1/cluster", found=True), shard), as_json=as_json)


def undrain(shard: ShardName, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Cancel a drain: the shard accepts messages and new topics again."""
    found = find_shard(cluster_to_change(admin), shard)
    answer = _ask_master(found, "/admin/v1/undrain")
    if as_json:
        print_json(answer)
    else:
        say(f"{answer['shard']}: takes topics again")


def drained(
    shard: ShardName, wait: Wait = False, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False
) -> None:
    """Show what keeps a shard from being drained. Exit code 1: it is not drained."""
    if wait:
        _wait(admin, shard, as_json=as_json)
        return
    cluster = ask(admin, "/admin/v1/cluster")
    found = find_shard(cluster, shard)
    _report(found, as_json=as_json)
    end_unless_seen(cluster)
    sys.exit(Exit.DONE if found["drained"] else Exit.FAILED)


def remove(
    shard: ShardName, admin: Admin = DEFAULT_ADMIN, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Forget a drained shard whose brokers are stopped."""
    found = find_shard(cluster_to_change(admin), shard)
    name = found["name"]
    if not found["drained"]:
        raise CommandError(f"{name} is not drained", cure=f"imago shard drain {name} --wait")
    if found["members"]:
        listed = ", ".join(member["rocketmq"] for member in found["members"])
        raise CommandError(f"{name} still runs at {listed}", cure="stop its brokers first")
    confirm(f"Forget {name}? What is in its data folders is read by nobody then.", yes=yes)
    answer = ask(admin, f"/admin/v1/shards/{found['id']}/remove", {"requestId": uuid4().hex})
    if as_json:
        print_json(answer)
    else:
        say(f"{name}: removed")


def move(
    topic: str,
    source: Annotated[str, Option("--from", help="Shard that the topic leaves.")],
    to: Annotated[str, Option("--to", help="Shards, like shard-1,shard-2.")],
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Send a topic's new messages to other shards; consumers still read those on this one."""
    found = find_shard(cluster_to_change(admin), source)
    answer = _ask_master(found, f"/admin/v1/topics/{quote(topic, safe='')}/move", to=_listed(to))
    if as_json:
        print_json(answer)
    else:
        say(f"topic {topic}: from {answer['from']} to {', '.join(answer['to'])}")


def spread(
    topic: str, to: Shards = None, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False
) -> None:
    """Give a topic queues on more shards: the named ones, or all that accept topics."""
    cluster = cluster_to_change(admin)
    path = f"/admin/v1/topics/{quote(topic, safe='')}"
    extra = {} if to is None else {"to": _listed(to)}
    for shard in cluster["shards"]:
        if shard["master"] is not None and _has(_master(shard), path):
            answer = _ask_master(shard, f"{path}/spread", **extra)
            break
    else:
        known = ask(admin, "/admin/v1/cluster/topics?limit=1000")["items"]
        raise unknown_topic(topic, (one["name"] for one in known))
    if as_json:
        print_json(answer)
    else:
        say(f"topic {topic}: on {', '.join(answer['shards'])}")


def find_shard(cluster: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a shard of the cluster by its name or number; CommandError lists them."""
    wanted = name.removeprefix("shard-")
    for shard in cluster["shards"]:
        if str(shard["id"]) == wanted:
            found: dict[str, Any] = shard
            return found
    listed = ", ".join(shard["name"] for shard in cluster["shards"])
    raise CommandError(f"there is no shard {name}", cure=f"one of {listed}")


def end_unless_seen(cluster: Mapping[str, Any]) -> None:
    """Say where what is shown of the cluster may be old, and end with exit code 1 then."""
    if not cluster["zooKeeperConnected"]:
        say(NO_REGISTRY)
        sys.exit(Exit.FAILED)


def progress(shard: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is left on a shard, one line per cause."""
    name, left = shard["name"], shard.get("drain")
    if shard["drained"]:
        yield f"{name} is drained: stop its brokers, then imago shard remove {name}"
        return
    if not shard["draining"]:
        yield f"{name} is not being drained"
        return
    if left is None:
        yield f"{name} is being drained; its master does not say how far it is"
        return
    yield (
        f"{name}: {counted(left['topicsToMove'], 'topic')} to move, "
        f"{left['unreadTopics']} to read out ({counted(left['queues'], 'queue')}, "
        f"{counted(left['messages'], 'message')}, {counted(left['bytes'], 'byte')})"
    )
    yield from _details(left)


def _details(left: Mapping[str, Any]) -> Iterator[str]:
    if left["blocked"]:
        yield f"  blocked: {left['blocked']}"
    yield from _topics(left)
    if left["takesMessagesUntil"]:
        until = second(left["takesMessagesUntil"])
        yield f"  producers that have not looked are served until {until}"
    if left["unclaimedMessages"]:
        yield f"  {counted(left['unclaimedMessages'], 'message')} that no group reads"
    if left["delayedMessages"]:
        yield f"  {counted(left['delayedMessages'], 'message')} to deliver later"
    if count := left.get("transactions"):  # older masters do not say
        yield f"  {counted(count, 'transaction')} of MetaQ's clients: imago metaq transactions list"
    if left["lastExpiresAt"]:
        yield f"  the last of them expires after {second(left['lastExpiresAt'])}"


def _topics(left: Mapping[str, Any]) -> Iterator[str]:
    if left["toMove"]:
        yield f"  to move: {_named(left['toMove'], left['topicsToMove'])}"
    if left["unread"]:
        yield f"  to read out: {_named(left['unread'], left['unreadTopics'])}"
    light = next((name for name in left["unread"] if name.startswith(LIGHT_PREFIX)), None)
    if light is not None:
        route = f"/admin/v1/topics/{quote(light, safe='')}"
        yield f"  a light queue that nobody needs: DELETE {route} ends it"
    for group, messages in left["groups"].items():
        yield f"  group {group} has {counted(messages, 'message')} to read"


def _named(names: Sequence[str], count: int) -> str:
    """Return as many names as the master tells, and how many there are besides."""
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + more


def _wait(admin: str, shard: str, *, as_json: bool) -> None:
    told, looks = "", 0
    while True:
        looks += 1
        found = find_shard(ask(admin, "/admin/v1/cluster"), shard)
        now = "\n".join(progress(found))
        news = _COUNTDOWN.sub("", now)
        if not as_json and news != told and (found["draining"] or looks > NEWS_LOOKS_MAX):
            print_line(now)
            told = news
        if found["drained"]:
            break
        if not found["draining"] and looks > NEWS_LOOKS_MAX:
            raise CommandError(
                f"{found['name']} is not being drained", cure=f"imago shard drain {found['name']}"
            )
        time.sleep(LOOK_SECONDS)
    if as_json:
        _report(found, as_json=True)


def _report(shard: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({key: shard[key] for key in ("name", "draining", "drained", "drain")})
    else:
        print_line("\n".join(progress(shard)))


def _ask_master(shard: Mapping[str, Any], path: str, **body: object) -> dict[str, Any]:
    master = _master(shard)
    whole = {"brokerId": master["uuid"], "requestId": uuid4().hex, **body}
    if shard["epoch"] is not None:
        whole["epoch"] = shard["epoch"]
    return ask(master["admin"], path, whole, found=True)


def _master(shard: Mapping[str, Any]) -> dict[str, Any]:
    for member in shard["members"]:
        if member["uuid"] == shard["master"]:
            found: dict[str, Any] = member
            return found
    raise CommandError(f"{shard['name']} has no master", cure="imago cluster explain")


def _has(master: Mapping[str, Any], path: str) -> bool:
    try:
        ask(master["admin"], path, found=True)
    except CallRefusedError as error:
        if error.reason != "topic_not_found":
            raise
        return False
    return True


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
