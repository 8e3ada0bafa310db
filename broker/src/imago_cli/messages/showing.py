"""How `imago consume` shows a message: its body, JSON, hex, or as a format says."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from imago_cli.exits import CommandUsageError
from imago_wire.record_format.properties import RESERVED

if TYPE_CHECKING:
    from imago_client import ReceivedMessage

Row: TypeAlias = Mapping[str, Any]
"""What is known of a message but its body."""
Show: TypeAlias = Callable[[Row, bytes], bytes]

FORMAT_HELP: Final = (
    "What to print of each, like '%t %q %o %k %s\\n': topic, queue, offset, key, body (%s), size"
    " (%S), tags (%g), headers (%h), id (%i), unique id (%u), time stored (%T)."
)
_PART: Final = re.compile(rb"%(.?)|\\(.?)|[^%\\]+", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
_FIELDS: Final[Mapping[bytes, Show]] = {
    b"t": lambda row, _: _text(row["topic"]),
    b"q": lambda row, _: _text(
        f"{row['shard']}/{row['queue']}"
        if "shard" in row
        else f"{row['server']}/{row['partition']}"
    ),
    b"o": lambda row, _: _text(row["offset"]),
    b"k": lambda row, _: _text(" ".join(row.get("keys", ()))),
    b"s": lambda _, body: body,
    b"S": lambda _, body: _text(len(body)),
    b"g": lambda row, _: _text(row.get("tags", row.get("attribute")) or ""),
    b"h": lambda row, _: _text(
        ",".join(f"{name}={value}" for name, value in row.get("properties", {}).items())
    ),
    b"i": lambda row, _: _text(row["id"]),
    b"u": lambda row, _: _text(row.get("uniqueId") or ""),
    b"T": lambda row, _: _text(row.get("storeMs", "")),
    b"%": lambda _, __: b"%",
}


def shower(
    *, as_json: bool = False, form: str | None = None, hexed: bool = False, prefixed: bool = False
) -> Show:
    """Return how messages are shown; CommandUsageError: in two ways at once, or an unknown one."""
    ways = {"--json": as_json, "--format": form is not None, "--hex": hexed}
    ways["--length-prefixed"] = prefixed
    given = [name for name, is_given in ways.items() if is_given]
    if len(given) > 1:
        raise CommandUsageError(f"{given[0]}: not beside {given[1]}", cure="choose one of them")
    if as_json:
        return lambda row, body: orjson.dumps({**row, **body_json(body)}) + b"\n"
    if form is not None:
        return _formatted(form)
    if hexed:
        return lambda _, body: body.hex().encode() + b"\n"
    if prefixed:
        return lambda _, body: len(body).to_bytes(4, "big") + body
    return lambda _, body: body + b"\n"


def row_of(message: ReceivedMessage) -> dict[str, Any]:
    """Return what is known of a message but its body."""
    properties = {name: value for name, value in message.properties.items() if name not in RESERVED}
    return {
        "topic": message.topic,
        "shard": message.queue.shard,
        "queue": message.queue.queue_id,
        "offset": message.offset,
        "id": message.message_id,
        "uniqueId": message.stored.unique_key,
        "tags": message.tags,
        "keys": list(message.keys),
        "bornMs": message.stored.born_ms,
        "storeMs": message.stored.store_ms,
        "reconsumeTimes": message.reconsume_times,
        "properties": properties,
    }


def body_json(body: bytes) -> dict[str, str]:
    """The body as text, or in base 64 where it is none."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


def _formatted(form: str) -> Show:
    parts: list[Show | bytes] = []
    for found in _PART.finditer(form.encode("utf-8", "surrogateescape")):
        field, escape = found[1], found[2]
        if field is not None:
            if field not in _FIELDS:
                known = " ".join(f"%{name.decode()}" for name in _FIELDS)
                raise CommandUsageError(
                    f"--format: %{field.decode('utf-8', 'replace')} is no field",
                    cure=f"use {known}",
                )
            parts.append(_FIELDS[field])
        elif escape is not None:
            parts.append(_ESCAPES.get(escape, b"\\" + escape))
        else:
            parts.append(found[0])

    def show(row: Row, body: bytes) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(row, body) for part in parts)

    return show


def _text(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogateescape")
