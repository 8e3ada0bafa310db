"""`imago dlq`: messages that groups gave up: which there are, what they say, and once more."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from imago_cli.clusters.missing import Partial, apart_from, end_with
from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    check_takes_back,
    confirm,
    connected,
    nearest,
)
from imago_cli.exits import CommandError, Exit
from imago_cli.groups.hold import Hold
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.messages.pace import Pace
from imago_cli.messages.showing import body_json, row_of
from imago_cli.output import counted, print_json, print_line, print_table, say
from imago_cli.times import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from imago_client import MessageQueue, ReceivedMessage
    from imago_client.blocking import Client

Answer = TypeVar("Answer")
READER: Final = "IMAGO_DLQ"
"""The group whose offsets say which dead letters went back: groups of users keep their own lag."""
PREFIX: Final = "%DLQ%"


@dataclass(frozen=True, slots=True)
class Letters:
    """One queue of a group's dead letters: offsets of those that are there and that wait."""

    queue: MessageQueue
    first: int
    waiting: int
    """The first that did not go back yet."""
    end: int
    updated_ms: int


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Messages that groups gave up; send them back.")
    group.add("list", list_groups)
    group.add("show", show)
    group.add("replay", replay)
    root.add("dlq", group)


def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, partial: Partial = False, as_json: AsJson = False
) -> None:
    """List the groups that gave messages up. Exit code 1: a shard is away."""
    with connected(bootstrap) as client:
        found = {name: _letters(client, name) for name in _groups(client)}
        missing = client.admin.missing_shards()
    rows: list[dict[str, Any]] = [
        {
            "group": group,
            "messages": sum(one.end - one.first for one in letters),
            "waiting": sum(one.end - one.waiting for one in letters),
            "newestMs": max((one.updated_ms for one in letters), default=0),
        }
        for group, letters in found.items()
    ]
    if as_json:
        print_json(rows)
    else:
        shown = [(r["group"], r["messages"], r["waiting"], moment(r["newestMs"])) for r in rows]
        print_table("", ("group", "messages", "waiting", "newest"), shown)
    end_with(missing, partial=partial)


def show(
    group: str,
    count: Annotated[int, Option(least=1, most=100_000, help="At most so many.")] = 20,
    everything: Annotated[bool, Option("--all", help="Also those that went back already.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Print what a group gave up: of which topic, after how many tries, when. Exit code 1: a shard
    is away."""
    with connected(bootstrap) as client:
        letters = _known_letters(client, group)
        missing = client.admin.missing_shards(PREFIX + group)
        left = -1
        for left, message in zip(
            range(count), _read(client, letters, everything=everything), strict=False
        ):
            row = _row(message)
            if as_json:
                print_json(row)
            else:
                if left:
                    print_line("")
                for line in _lines(row):
                    print_line(line)
        if left < 0:
            more = "" if everything else "; --all shows what went back already"
            say(f"nothing that group {group} gave up is here{more}")
    end_with(missing, partial=partial)


def replay(
    group: str,
    count: Annotated[int | None, Option(least=1, help="At most so many.")] = None,
    rate: Annotated[
        float | None, Option(least=0.001, most=1e6, help="Messages a second, at most.")
    ] = None,
    everything: Annotated[bool, Option("--all", help="Also those that went back already.")] = False,
    to_topics: Annotated[
        bool,
        Option(
            "--to-topics",
            help="Send each to the topic that it was in: for groups that read by POP or gRPC."
            " All groups of the topic get it.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Say how many would go, and send nothing.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Yes = False,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Give a group its dead letters once more, and no other group of their topics.

    Its consumers get them as if they were new, shard by shard in the order in which they were given
    up. What went back is remembered (offsets of the group IMAGO_DLQ): repeated, the command goes on
    behind it. When it is killed the message that it was at may go twice. One that runs keeps others
    out, for a minute more where it was killed. Exit code 1: a shard is away.
    """
    with connected(bootstrap) as client, Hold(client.pull_consumer(READER)) as hold:
        letters = _known_letters(client, group)
        if letters and not dry_run:
            hold.take([one.queue for one in letters])
            letters = _known_letters(client, group)  # as another has left it meanwhile
        missing = client.admin.missing_shards(PREFIX + group)
        there = sum(one.end - (one.first if everything else one.waiting) for one in letters)
        total = there if count is None else min(there, count)
        pace, left_out = Pace("sent back", total), 0
        if total and not dry_run:
            if not to_topics:
                check_takes_back(client, group)
            whom = "all groups of their topics" if to_topics else f"group {group}"
            confirm(f"Give {whom} {counted(total, 'message')} once more?", yes=yes)
            to = None if to_topics else group
            read = _read(client, letters, everything=everything)
            try:
                left_out = _send_back(
                    client, to, letters, hold.kept(islice(read, total), rate), pace
                )
            finally:
                pace.end()
                _tell(group, pace.count, there - pace.count, as_json=as_json)
        else:
            _tell(group, 0, there, as_json=as_json)
            if dry_run:
                say(f"{counted(total, 'message')} would go; nothing was sent: --dry-run")
    end_with(missing, partial=partial, lacks="not sent")
    if left_out:
        sys.exit(Exit.FAILED)


def _send_back(
    client: Client,
    group: str | None,
    letters: Sequence[Letters],
    messages: Iterable[ReceivedMessage],
    pace: Pace,
) -> int:
    """Send them to a group, or to their topics; return how many cannot be sent, which is said."""
    from imago_client.resent import Resent, origin

    producer, reader = client.producer(), client.pull_consumer(READER)
    waiting = {one.queue: one.waiting for one in letters}
    left_out = 0
    for message in messages:
        if message.error is not None:
            say(f"not sent: {message.error}")
            left_out += 1
        elif group is None:
            producer.send(Resent.to_topic(message, origin(message)))
        else:
            producer.send(Resent.to_group(message, group))
        if message.offset >= waiting[message.queue]:  # what went before went, whatever comes
            done = partial(reader.commit, message.queue, message.offset + 1)
            _made_if_missing(client, done)
        pace.add(message.error is None, message.size)
    return left_out


def _tell(group: str, sent: int, left: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"group": group, "sent": sent, "left": left})
    else:
        say(f"group {group}: {counted(sent, 'message')} sent back, {left:,} left")


def _groups(client: Client) -> list[str]:
    return sorted(t.removeprefix(PREFIX) for t in client.admin.topics() if t.startswith(PREFIX))


def _known_letters(client: Client, group: str) -> list[Letters]:
    """Return a group's dead letters, none of one that gave nothing up; CommandError: no group."""
    known = _groups(client)
    if group in known:
        return _letters(client, group)
    if not client.admin.has_group(group):
        end_with(client.admin.missing_shards(), partial=False, lacks="not searched")
        cure = nearest(group, {*known, *client.admin.groups()}) or "imago dlq list"
        raise CommandError(f"there is no group {group}", cure=cure)
    return []


def _letters(client: Client, group: str) -> list[Letters]:
    reader = client.pull_consumer(READER)
    found = []
    for one in client.admin.topic_bounds(PREFIX + group):
        committed = _made_if_missing(client, partial(reader.committed, one.queue)) or 0
        waiting = min(max(committed, one.min_offset), one.max_offset)
        found.append(Letters(one.queue, one.min_offset, waiting, one.max_offset, one.updated_ms))
    return found


def _read(
    client: Client, letters: Sequence[Letters], *, everything: bool
) -> Iterator[ReceivedMessage]:
    """Yield the messages that were there when `letters` were looked at."""
    reader = client.pull_consumer(READER)
    for one in letters:
        offset = one.first if everything else one.waiting
        while offset < one.end:
            pulled = _made_if_missing(client, partial(reader.pull, one.queue, offset))
            yield from (m for m in pulled.messages() if offset <= m.offset < one.end)
            if pulled.next_offset <= offset:  # never passed over: it may be readable again later
                why = f": {pulled.remark}" if pulled.remark else ""
                raise CommandError(
                    f"{one.queue} offset {offset} cannot be read now{why}",
                    cure="repeat the command; damage heals from other members of the shard",
                )
            offset = pulled.next_offset


def _made_if_missing(client: Client, call: Callable[[], Answer]) -> Answer:
    """Call, once more with our group made where brokers make none by themselves."""
    from imago_client import BrokerError
    from imago_wire.remoting.bodies.config import SubscriptionGroupConfig
    from imago_wire.remoting.codes import ResponseCode

    try:
        return call()
    except BrokerError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
    with apart_from(client.admin.missing_shards()):
        client.admin.create_group(SubscriptionGroupConfig(group_name=READER))
    return call()


def _row(message: ReceivedMessage) -> dict[str, Any]:
    from imago_wire.record_format import properties as names

    said = message.properties
    row = row_of(message)
    row["properties"] = message.user_properties
    row["originTopic"] = said.get(names.RETRY_TOPIC) or said.get(names.DLQ_ORIGIN_TOPIC)
    row["originId"] = said.get(names.ORIGIN_MESSAGE_ID) or said.get(names.DLQ_ORIGIN_MESSAGE_ID)
    return row | body_json(message.stored.body if message.error else message.body)


def _lines(row: dict[str, Any]) -> Iterator[str]:
    came = row["originTopic"] or "of an unknown topic"
    yield f"{came}: given up after it was tried {counted(row['reconsumeTimes'], 'time')}"
    told = {
        "given up": moment(row["storeMs"]),
        "born": moment(row["bornMs"]),
        "id": row["uniqueId"] or row["id"],
        "dead letter": f"{row['shard']}/{row['queue']} offset {row['offset']}",
        "tags": row["tags"],
        "keys": " ".join(row["keys"]),
    }
    told |= {f"property {name}": value for name, value in sorted(row["properties"].items())}
    yield from (f"  {name}: {value}" for name, value in told.items() if value)
    yield f"  body: {row['body'] if 'body' in row else '(no text, base 64) ' + row['bodyBase64']}"
