"""Scan a read buffer into commands: the plain Python reference of the compiled ``_text_c``.

Reached through :mod:`imago_wire.hot`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imago_wire.errors import ChecksumError, LimitExceededError, ProtocolError
from imago_wire.records._record_py import metaq_entry
from imago_wire.text.commands import Command, Get, Put
from imago_wire.text.items import BAD, GET, OTHER, PUT, BadLineItem, GetItem, OtherItem, PutItem
from imago_wire.text.line import Pending, parse_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_wire.record_format.entries import Entry, Placed, QueueTail
    from imago_wire.text.items import AskedPut, Item

_PUT_LINE: Final = re.compile(
    rb"put ([!-~]+) (-?\d{1,10}) (\d{1,9}) (-?\d{1,10}) (-?\d{1,10}) (-?\d{1,10})\r\n"
)
_PLAIN_PUT_LINE: Final = re.compile(
    rb"put ([!-~]+) (-?\d{1,18}) (-?\d{1,18}) (-?\d{1,18}) (-?\d{1,18}) (-?\d{1,18})\r\n"
)
_I32_MIN: Final = -(1 << 31)
_I32_MAX: Final = (1 << 31) - 1


def scan_text(
    data: bytes | bytearray, line_bytes_max: int, body_bytes_max: int
) -> tuple[list[Item], int]:
    """Return the whole commands at the start of data, and how many bytes they fill.

    A line or body above its limit, and a line that is no command, end the list with
    a ``BadLineItem``: what came before is answered, then the peer is closed. Bytes of a line or a
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
            items.append(BadLineItem(BAD, str(error)))
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
    item = PutItem(PUT, topic.decode(), partition, flag, checksum, None, opaque, body)
    return item, start + size


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
            return PutItem(PUT, topic, partition, flag, known, transaction, opaque, body)
        case Get(topic, group, partition, offset, max_size, opaque):
            return GetItem(GET, topic, group, partition, offset, max_size, opaque)
        case _:
            return OtherItem(OTHER, command)


def take_puts(
    data: bytes | bytearray,
    limits: tuple[int, int],
    tails_of: Mapping[str, Sequence[QueueTail | None]],
    born: tuple[int, bytes],
    entries: list[Entry],
    asked: list[AskedPut],
    grants: Mapping[str, bool] | None = None,
) -> int:
    """Make entries of the puts at the start of data; return how many bytes they fill.

    `limits` are those of a line and of a body; `tails_of` the partitions of the topics that take
    puts as they come; `born` time and host. Both lists grow by one item a put.
    Ends at the first command that is anything else, or a put that needs a closer look: to another
    topic or partition, too large, with a wrong checksum or a transaction, or written otherwise
    than clients do. `grants` says of each topic whether puts to it are allowed; None: all are.
    """
    at = 0
    while at < len(data):
        match = _PLAIN_PUT_LINE.match(data, at)
        if match is None or match.end() - at - 2 > limits[0]:
            break
        topic = match[1].decode()
        partition, size, flag, checksum, opaque = map(int, match.groups()[1:])
        start = match.end()
        numbers = (partition, size, flag, checksum, opaque)
        if not (
            all(_I32_MIN <= number <= _I32_MAX for number in numbers)
            and 0 <= size <= limits[1]
            and start + size <= len(data)
            and 0 <= partition < len(tails := tails_of.get(topic, ()))
            and (tail := tails[partition]) is not None
            and (grants is None or grants[topic])
        ):
            break
        try:
            body = bytes(data[start : start + size])
            entry = metaq_entry(tail, body, flag, checksum, *born)
        except (ChecksumError, ProtocolError):
            break
        entries.append(entry)
        asked.append((opaque, partition, topic))
        at = start + size
    return at


def encode_put_results(
    asked: Sequence[AskedPut], placed: Sequence[Placed], first: int, end: int
) -> bytes:
    """Return the answers to the puts `first` … `end`: who asked, and where each one lies."""
    answers = []
    for at in range(first, end):
        opaque, partition, _ = asked[at]
        _, _, _, position, metaq_id = placed[at]
        text = b"%d %d %d" % (metaq_id, partition, position)
        answers.append(b"result 200 %d %d\r\n%b" % (len(text), opaque, text))
    return b"".join(answers)
