"""Scan a read buffer into commands: the plain Python reference of the compiled ``_text_c``.

Reached through :mod:`imago_wire.hot`. Every command comes as a tuple whose first item says which
form it has; the two commands that clients send by the million come in parts, the others as values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.text.commands import Command, Get, Put
from imago_wire.text.line import Pending, parse_line

if TYPE_CHECKING:
    from collections.abc import Iterable

OTHER: Final = 0
PUT: Final = 1
GET: Final = 2
BAD: Final = -1

PutItem: TypeAlias = tuple[Literal[1], str, int, int, int, str | None, int, bytes]
"""PUT, topic, partition, flag, checksum or -1, transaction key, opaque, body."""
GetItem: TypeAlias = tuple[Literal[2], str, str, int, int, int, int]
"""GET, topic, group, partition, offset, max size, opaque."""
OtherItem: TypeAlias = tuple[Literal[0], Command]
BadItem: TypeAlias = tuple[Literal[-1], str]
Item: TypeAlias = PutItem | GetItem | OtherItem | BadItem

_PUT_LINE: Final = re.compile(
    rb"put ([!-~]+) (-?\d{1,10}) (\d{1,9}) (-?\d{1,10}) (-?\d{1,10}) (-?\d{1,10})\r\n"
)
_I32_MIN: Final = -(1 << 31)
_I32_MAX: Final = (1 << 31) - 1


def scan_text(
    data: bytes | bytearray, line_bytes_max: int, body_bytes_max: int
) -> tuple[list[Item], int]:
    """Return the whole commands at the start of data, and how many bytes they fill.

    A line or body above its limit, and a line that is no command, end the list with
    ``(BAD, reason)``: what came before is answered, then the peer is closed. Bytes of a line or a
    body that has not wholly arrived are left; a body over the limit is refused by its line.
    """
    items: list[Item] = []
    at = 0
    while at < len(data):
        try:
            scanned = _put(data, at, line_bytes_max, body_bytes_max) or _any(
                data, at, line_bytes_max, body_bytes_max
            )
        except ProtocolError as error:
            items.append((BAD, str(error)))
            break
        if scanned is None:
            break
        item, at = scanned
        items.append(item)
    return items, at


def _put(
    data: bytes | bytearray, at: int, line_bytes_max: int, body_bytes_max: int
) -> tuple[Item, int] | None:
    """Scan the usual put, with a checksum and no transaction; None: not that, or not yet."""
    match = _PUT_LINE.match(data, at)
    if match is None or match.end() - at - 2 > line_bytes_max:
        return None
    topic, *words = match.groups()
    partition, size, flag, checksum, opaque = map(int, words)
    if (
        min(partition, flag, checksum, opaque) < _I32_MIN
        or max(partition, flag, checksum, opaque) > _I32_MAX
    ):
        return None
    start = match.end()
    if size > body_bytes_max or start + size > len(data):
        return None
    body = bytes(data[start : start + size])
    return (PUT, topic.decode(), partition, flag, checksum, None, opaque, body), start + size


def _any(
    data: bytes | bytearray, at: int, line_bytes_max: int, body_bytes_max: int
) -> tuple[Item, int] | None:
    """Scan any command by the rules of the line parser; None: it has not wholly arrived."""
    end = data.find(b"\r\n", at, at + line_bytes_max + 2)
    if end < 0:
        if len(data) - at >= line_bytes_max + 2:
            raise LimitExceededError("line", size=len(data) - at, size_max=line_bytes_max)
        return None
    command = parse_line(bytes(data[at:end]))
    end += 2
    if isinstance(command, Pending):
        size = command.size
        if size > body_bytes_max:
            raise LimitExceededError("body", size=size, size_max=body_bytes_max)
        if len(data) - end < size:
            return None
        command = command.finish(bytes(data[end : end + size]))
        end += size
    return _item(command), end


def _item(command: Command) -> Item:
    match command:
        case Put(topic, partition, flag, body, opaque, checksum, transaction):
            known = -1 if checksum is None else checksum
            return (PUT, topic, partition, flag, known, transaction, opaque, body)
        case Get(topic, group, partition, offset, max_size, opaque):
            return (GET, topic, group, partition, offset, max_size, opaque)
        case _:
            return (OTHER, command)


def encode_put_results(results: Iterable[tuple[int, int, int, int]]) -> bytes:
    """Return the answers to puts: of (opaque, message id, partition, position) each."""
    answers = []
    for opaque, message_id, partition, position in results:
        text = b"%d %d %d" % (message_id, partition, position)
        answers.append(b"result 200 %d %d\r\n%b" % (len(text), opaque, text))
    return b"".join(answers)
