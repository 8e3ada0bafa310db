"""What `imago produce` sends: words, files, lines of standard input, or records in JSON."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from imago_cli.exits import CommandUsageError
from imago_wire.record_format.properties import is_reserved

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

_NAMES: Final = frozenset({"body", "bodyBase64", "key", "keys", "tags", "properties"})
"""Of a record in JSON what is sent; what else `imago consume --json` prints is left out."""
_PRINTED: Final = frozenset(
    {"topic", "shard", "queue", "offset", "id", "uniqueId", "bornMs", "storeMs", "reconsumeTimes"}
)


class ToSend(NamedTuple):
    """One message; None where nothing was said of it alone."""

    body: bytes
    keys: tuple[str, ...] | None = None
    tags: str | None = None
    properties: Mapping[str, str] = {}


async def to_send(
    words: Sequence[str] | None,
    files: Sequence[Path] | None,
    *,
    separator: str | None = None,
    json_records: bool = False,
    count: int = 1,
) -> AsyncIterator[ToSend]:
    """Yield the messages, each `count` times; CommandUsageError: one cannot be read."""
    async for one in _each(words, files, separator=separator, json_records=json_records):
        for _ in range(count):
            yield one


async def _each(
    words: Sequence[str] | None,
    files: Sequence[Path] | None,
    *,
    separator: str | None,
    json_records: bool,
) -> AsyncIterator[ToSend]:
    for path in files or ():
        try:
            yield ToSend(path.read_bytes())
        except OSError as error:
            raise CommandUsageError(f"--file {path}: {error.strerror}") from error
    for word in words or ():
        yield _record(os.fsencode(word), "the message", separator, json_records=json_records)
    if words or files:
        return
    from imago_cli.messages.stdin_lines import lines

    number = 0
    async for line in lines():
        number += 1
        if line or not json_records:
            yield _record(line, f"line {number}", separator, json_records=json_records)


def _record(line: bytes, where: str, separator: str | None, *, json_records: bool) -> ToSend:
    if json_records:
        return _of_json(line, where)
    if separator is None:
        return ToSend(line)
    key, found, body = line.partition(separator.encode())
    if not found:
        raise CommandUsageError(
            f"{where} has no {separator!r} behind a key", cure="write KEY, the separator, the body"
        )
    return ToSend(body, (_text(key, where),) if key else ())


def _of_json(line: bytes, where: str) -> ToSend:
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise CommandUsageError(f"{where} is no JSON: {error}") from error
    if not isinstance(said, dict) or ("body" in said) == ("bodyBase64" in said):
        raise CommandUsageError(
            f"{where} is no record", cure='write {"body": TEXT} or {"bodyBase64": TEXT}'
        )
    if unknown := sorted(said.keys() - _NAMES - _PRINTED):
        raise CommandUsageError(
            f"{where}: a record has no {unknown[0]}",
            cure=f"it may have {', '.join(sorted(_NAMES))}",
        )
    keys = said.get("keys", [said["key"]] if "key" in said else [])
    properties, tags = said.get("properties") or {}, said.get("tags") or ""
    if not isinstance(keys, list) or not isinstance(properties, dict):
        raise CommandUsageError(f"{where}: keys is a list and properties an object of texts")
    if not all(isinstance(each, str) for each in (tags, *keys, *properties.values())):
        raise CommandUsageError(f"{where}: keys, tags and properties are texts")
    own = {name: value for name, value in properties.items() if not is_reserved(name)}
    return ToSend(_body(said, where), tuple(keys) or None, tags or None, own)


def _body(said: Mapping[str, Any], where: str) -> bytes:
    try:
        if "body" in said:
            return str(said["body"]).encode()
        return base64.b64decode(said["bodyBase64"], validate=True)
    except (TypeError, ValueError) as error:
        raise CommandUsageError(f"{where}: the body cannot be read: {error}") from error


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CommandUsageError(f"{where}: its key is no text in UTF-8") from error


def headers_of(assignments: Sequence[str] | None) -> dict[str, str]:
    """Return the properties of `--header NAME=VALUE`; CommandUsageError: one is none."""
    found = {}
    for text in assignments or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise CommandUsageError(f"--header {text}: is not NAME=VALUE")
        found[name] = value
    return found
