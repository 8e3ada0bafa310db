"""`imago message`: find a message by whatever one knows of it, and send it once more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.clusters.missing import Partial, check_exists, end_with_told
from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    check_takes_back,
    confirm,
    connected,
    unknown_topic,
)
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.messages.consume import GROUP
from imago_cli.messages.trace import trace
from imago_cli.messages.waiting import half, recall, scheduled
from imago_cli.output import print_json, print_line, say
from imago_cli.times import moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_client import Message, ReceivedMessage
    from imago_client.blocking import Client

_PLACE: Final = re.compile(r"(?P<topic>[^/]+)/(?:shard-)?(?P<shard>\d{1,4})/(?P<queue>\d{1,5})")


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Find messages, see what waits; resend one.")
    group.add("get", get)
    group.add("resend", resend)
    group.add("scheduled", scheduled)
    group.add("half", half)
    group.add("recall", recall)
    group.add("trace", trace)
    root.add("message", group)


def get(
    message_id: Annotated[
        str | None,
        Argument(
            metavar="[ID]", help="Of any kind: from a send result, a consumer, a log, a trace."
        ),
    ] = None,
    key: Annotated[str | None, Option(help="With --topic: one of the message's keys.")] = None,
    topic: Annotated[str | None, Option(help="Where to look; needed with --key.")] = None,
    queue: Annotated[
        str | None, Option(metavar="TOPIC/SHARD/QUEUE", help="With --offset: its queue.")
    ] = None,
    offset: Annotated[int | None, Option(least=0, help="Its offset in that queue.")] = None,
    count: Annotated[int, Option(least=1, most=200, help="At most so many.")] = 20,
    admin: Admin = DEFAULT_ADMIN,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Print a message with all that is known of it, from whatever shard has it.

    Exit code 1: it is on no shard, or a shard is away that may have it.
    """
    query = _query(message_id, key, topic, queue, offset) | {"limit": str(count)}
    answer = ask(admin, f"/admin/v1/messages?{urlencode(query)}")
    found: list[dict[str, Any]] = answer["items"]
    if offset is not None:
        found = [one for one in found if one["offset"] == offset]
    for one in found:
        if as_json:
            print_json(one)
        else:
            for line in _lines(one):
                print_line(line)
    missing = answer.get("missing", ())
    if not found and not missing:
        cure = (
            "the message may have expired; `imago topic describe` shows from where on there are any"
        )
        raise CommandError("no shard has such a message", cure=cure)
    if message_id is None or not found:  # of an id there is no other message elsewhere
        end_with_told(missing, partial=partial, lacks="not searched")


def resend(
    message_id: Annotated[
        str | None,
        Argument(
            metavar="[ID]", help="Of any kind: from a send result, a consumer, a log, a trace."
        ),
    ] = None,
    queue: Annotated[
        str | None, Option(metavar="TOPIC/SHARD/QUEUE", help="With --offset: its queue.")
    ] = None,
    offset: Annotated[int | None, Option(least=0, help="Its offset in that queue.")] = None,
    to: Annotated[
        str | None,
        Option(help="The topic to send it to.", show_default="the one that it was in"),
    ] = None,
    group: Annotated[
        str | None, Option(help="Have this group alone get it, and no other of the topic.")
    ] = None,
    admin: Admin = DEFAULT_ADMIN,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send a stored message once more, as a new message or to one group alone."""
    if to is not None and group is not None:
        raise CommandUsageError("--to: not beside --group", cure="leave one of them out")
    query = _query(message_id, None, None, queue, offset) | {"limit": "1"}
    answer = ask(admin, f"/admin/v1/messages?{urlencode(query)}")
    found = [one for one in answer["items"] if offset is None or one["offset"] == offset]
    if not found:
        end_with_told(answer.get("missing", ()), partial=False, lacks="not searched")
        raise CommandError("no shard has such a message", cure="imago message get finds messages")
    with connected(bootstrap) as client:
        message = _stored(client, found[0])
        again = _again(client, message, to, group)
        where = f"group {group}" if group is not None else f"topic {again.topic}"
        confirm(f"Send the message {message.message_id} to {where}?", yes=yes)
        sent = client.producer().send(again)
    if as_json:
        place = {"shard": sent.queue.shard, "queue": sent.queue.queue_id, "offset": sent.offset}
        kept = message.message_id if group is not None else sent.message_id
        print_json({"id": kept, "topic": again.topic, **place})
    else:
        say(f"sent to {where}: {sent.queue} offset {sent.offset}")


def _stored(client: Client, found: Mapping[str, Any]) -> ReceivedMessage:
    """Return a message whole: the admin interface shows the beginning of a long body."""
    from imago_client import MessageQueue

    place = MessageQueue(found["topic"], found["shard"], found["queue"])
    for one in client.pull_consumer(GROUP).pull(place, found["offset"]).messages():
        if one.offset == found["offset"]:
            return one
    raise CommandError(
        f"{place} offset {found['offset']}: it has expired meanwhile",
        cure="keep messages for longer: store.retention_ms, store.retention_bytes_max",
    )


def _again(client: Client, message: ReceivedMessage, to: str | None, group: str | None) -> Message:
    from imago_client.resent import Resent, origin

    if group is not None:
        check_exists(client, group)
        check_takes_back(client, group)
        return Resent.to_group(message, group)
    topic = to or origin(message)
    if topic not in (known := client.admin.topics()):
        raise unknown_topic(topic, known)
    return Resent.to_topic(message, topic)


def _query(
    message_id: str | None,
    key: str | None,
    topic: str | None,
    queue: str | None,
    offset: int | None,
) -> dict[str, str]:
    ways = [message_id is not None, key is not None, queue is not None]
    if sum(ways) != 1:
        raise CommandUsageError(
            "say one thing by which to find the message",
            cure="its ID, --topic and --key, or --queue TOPIC/SHARD/QUEUE and --offset",
        )
    if message_id is not None:
        return {"id": message_id} | ({"topic": topic} if topic else {})
    if key is not None:
        if topic is None:
            raise CommandUsageError("--key: in which topic is not said", cure="add --topic")
        return {"topic": topic, "key": key}
    place = _PLACE.fullmatch(queue or "")
    if place is None or offset is None:
        raise CommandUsageError(
            f"--queue {queue}: a place is a queue and --offset",
            cure="write for example --queue orders/shard-0/3 --offset 42",
        )
    said = place.groupdict()
    return {**said, "offset": str(offset), "limit": "1"}


def _lines(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a person reads: where it is, what it is called, when, then its body."""
    yield f"{one['topic']}/{one['shard']}/{one['queue']} offset {one['offset']}"
    told = {
        "id": one["id"],
        "unique id": one["uniqueId"],
        "tags": one["tags"],
        "keys": one["keys"],
        "born": f"{moment(one['bornTime'])} at {one['bornHost']}",
        "stored": moment(one["storeTime"]),
        "bytes": one["size"],
    }
    told |= {f"property {name}": value for name, value in sorted(one["properties"].items())}
    yield from (f"  {name}: {value}" for name, value in told.items() if value not in (None, ""))
    body = one["text"] if one["text"] is not None else one.get("error", "(no text)")
    yield f"  body: {body}"
