"""`imago message trace`: who sent a message and who handled it, as clients that trace tell."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple
from urllib.parse import urlencode

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, CallRefusedError, ask
from imago_cli.clusters.missing import Partial, end_with_told, merged
from imago_cli.connect import AsJson
from imago_cli.exits import CommandError
from imago_cli.line.declared import Argument, Option
from imago_cli.output import print_json, print_table, say
from imago_cli.times import moment
from imago_wire.errors import ProtocolError
from imago_wire.remoting.texts.trace import TraceRecord, decode_trace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_PATH: Final = "/admin/v1/messages"
_UNIQUE: Final = re.compile("[0-9A-Fa-f]{32,34}")
_SENT: Final = {"0": "sent", "1": "sent, half", "2": "committed", "3": "sent, delayed"}
_ENDED: Final = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolled back"}
_HANDLED: Final = {
    "0": "success",
    "1": "took too long",
    "2": "exception",
    "3": "returned nothing",
    "4": "failed",
}
_CURE: Final = (
    "have its clients tell: in Java enableMsgTrace of DefaultMQProducer's and"
    " DefaultMQPushConsumer's constructors, in Python ClientConfig(trace=True); brokers need"
    " rocketmq.trace_on. They tell some seconds later; --trace-topic names another topic"
)


class TraceStep(NamedTuple):
    """One thing that a client did with a message."""

    time_ms: int
    what: str
    group: str
    client: str
    """The address from which it was told."""
    outcome: str
    took_ms: int | None
    where: str
    """What it was sent to, or which try it was."""


def trace(
    message_id: Annotated[
        str, Argument(metavar="ID", help="The unique id of a message, or one of its keys.")
    ],
    trace_topic: Annotated[str, Option(help="The topic in which clients tell.")] = TRACE_TOPIC,
    count: Annotated[
        int, Option(least=1, most=200, help="Look at so many messages of that topic at most.")
    ] = 50,
    admin: Admin = DEFAULT_ADMIN,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Show who sent a message, who handled it, when, and how that ended.

    As its clients tell where they trace. Needs a right to read the trace topic. Exit code 1:
    nobody has told of it, or a shard is away.
    """
    names = [message_id]
    if _UNIQUE.fullmatch(message_id) and message_id != message_id.upper():
        names.append(message_id.upper())  # brokers write ids so; a key of such digits stays
    answers = [_told_of(admin, trace_topic, name, count) for name in names]
    found = {
        (one["shard"], one["queue"], one["offset"]): one
        for answer in answers
        for one in answer["items"]
    }
    told = [each for one in found.values() for each in _records(admin, one)]
    steps = story(told, names)
    missing = merged(answers)
    if not steps and not missing:
        raise CommandError(f"no client has told of message {message_id}", cure=_CURE)
    if as_json:
        print_json({"steps": [each._asdict() for each in steps], "missing": missing})
    else:
        columns = ("time", "what", "group", "client", "outcome", "ms", "where")
        rows = [
            (moment(one.time_ms), *one[1:5], "" if one.took_ms is None else one.took_ms, one.where)
            for one in steps
        ]
        print_table("", columns, rows)
        if any(len(answer["items"]) == count for answer in answers):
            say(f"only the last {count} messages about it were looked at: --count")
    end_with_told(missing, partial=partial, lacks="not searched")


def _told_of(admin: str, topic: str, name: str, count: int) -> dict[str, Any]:
    """Return the newest messages of the trace topic about an id or a key."""
    query = {"topic": topic, "key": name, "limit": str(count)}
    try:
        return ask(admin, f"{_PATH}?{urlencode(query)}")
    except CallRefusedError as error:
        if error.reason != "topic_not_found":
            raise
        return {"items": []}


def story(told: Iterable[tuple[TraceRecord, str]], names: Collection[str]) -> list[TraceStep]:
    """Return what was done with a message in order, out of records and where they came from.

    `names`: its id or a key of it, in each form in which it may be written.
    """
    begun: dict[tuple[str, str], tuple[Mapping[str, str], str]] = {}
    ends: dict[tuple[str, str], Mapping[str, str]] = {}
    steps: dict[TraceStep, None] = {}
    for record, client in told:
        fields = record.fields
        if not {fields.get("msgId"), *fields.get("keys", "").split()}.intersection(names):
            continue
        call = fields.get("requestId", ""), fields.get("msgId", "")
        if record.kind == "SubBefore":
            begun[call] = fields, client
        elif record.kind == "SubAfter":
            ends[call] = fields
        else:
            steps[_of_producer(record, client)] = None
    for call, (fields, client) in begun.items():
        steps[_handled(fields, client, ends.get(call))] = None
    return sorted(steps)


def _of_producer(record: TraceRecord, client: str) -> TraceStep:
    fields = record.fields
    what = "taken back" if record.kind == "Recall" else _SENT.get(fields.get("msgType", ""), "sent")
    outcome = "failed" if fields.get("isSuccess") == "false" else "success"
    if record.kind == "EndTransaction":
        state = fields.get("transactionState", "")
        what, outcome = "transaction ended", _ENDED.get(state, state)
    host = fields.get("storeHost")
    where = fields.get("topic", "") + (f" at {host}" if host else "")
    return TraceStep(
        _number(fields, "timeStamp") or 0,
        what,
        fields.get("groupName", ""),
        client,
        outcome,
        _number(fields, "costTime"),
        where,
    )


def _handled(before: Mapping[str, str], client: str, after: Mapping[str, str] | None) -> TraceStep:
    tries = _number(before, "retryTimes") or 0
    outcome, took_ms = "not ended, or not told", None
    if after is not None:
        code = after.get("contextCode", "0" if after.get("isSuccess") == "true" else "4")
        outcome, took_ms = _HANDLED.get(code, code), _number(after, "costTime")
    return TraceStep(
        _number(before, "timeStamp") or 0,
        "handled",
        before.get("groupName", ""),
        client,
        outcome,
        took_ms,
        f"try {tries + 1}",
    )


def _number(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _records(admin: str, found: Mapping[str, Any]) -> Iterator[tuple[TraceRecord, str]]:
    """Yield the records of a message of the trace topic; none where it has none."""
    place = {key: str(found[key]) for key in ("topic", "queue", "offset")}
    shard = str(found["shard"]).removeprefix("shard-")
    query = {**place, "shard": shard, "limit": "1", "body": "base64"}
    for one in ask(admin, f"{_PATH}?{urlencode(query)}")["items"]:
        if one["offset"] != found["offset"]:
            continue  # it has expired meanwhile
        try:
            records = decode_trace(b64decode(one.get("body", "")))
        except ProtocolError as error:
            say(f"note: {place['topic']} has what no client tells: {error}")
            continue
        yield from ((record, one["bornHost"]) for record in records)
