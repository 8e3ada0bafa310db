"""Commands and answers to bytes."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from imago_wire.errors import ProtocolError, WrongKindError
from imago_wire.text.commands import (
    Auth,
    Command,
    Get,
    Offset,
    Put,
    Quit,
    Result,
    Stats,
    Sync,
    Transaction,
    Value,
    Version,
)
from imago_wire.text.items import BadLineItem, GetItem, OtherItem, PutItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_wire.text.items import Item


def value_head(size: int, opaque: int) -> bytes:
    """Return the line of a ``value``; ``size`` bytes of stored messages follow it."""
    return b"value %d %d\r\n" % (size, opaque)


def result(code: int, text: str | bytes, opaque: int) -> bytes:
    """Return an answer. A 200 to put, offset or prepare must not be empty: clients break on it."""
    body = text.encode() if isinstance(text, str) else text
    return b"result %d %d %d\r\n%b" % (code, len(body), opaque, body)


@singledispatch
def encode(command: Command) -> bytes:
    """Return the command's bytes, body included.

    ProtocolError: a word is empty or holds a space or a line end, so that it could not be read.
    """
    raise WrongKindError(f"{type(command).__name__} is no command")


@encode.register
def _(command: Put) -> bytes:
    checksum = b"" if command.checksum is None else b" %d" % command.checksum
    key = b"" if command.transaction is None else b" " + _word(command.transaction)
    return b"put %b %d %d %d%b%b %d\r\n%b" % (
        _word(command.topic), command.partition, len(command.body), command.flag, checksum, key,
        command.opaque, command.body,
    )  # fmt: skip


@encode.register
def _(command: Get) -> bytes:
    return b"get %b %b %d %d %d %d\r\n" % (
        _word(command.topic), _word(command.group), command.partition, command.offset,
        command.max_size, command.opaque,
    )  # fmt: skip


@encode.register
def _(command: Offset) -> bytes:
    return b"offset %b %b %d %d %d\r\n" % (
        _word(command.topic), _word(command.group), command.partition, command.offset,
        command.opaque,
    )  # fmt: skip


@encode.register
def _(command: Version) -> bytes:
    return b"version\r\n" if command.opaque is None else b"version %d\r\n" % command.opaque


@encode.register
def _(command: Stats) -> bytes:
    item = _word(command.item) if command.item else b""
    if command.opaque is not None:
        # The opaque needs the item's place: without an item there are two spaces.
        return b"stats %b %d\r\n" % (item, command.opaque)
    return b"stats %b\r\n" % item if item else b"stats\r\n"


@encode.register
def _(_command: Quit) -> bytes:
    return b"quit\r\n"


@encode.register
def _(command: Transaction) -> bytes:
    timeout = b"" if command.timeout_s is None else b" %d" % command.timeout_s
    qualifier = b"" if command.qualifier is None else b" " + _word(command.qualifier)
    return b"transaction %b %b %b%b%b %d\r\n" % (
        _word(command.key), _word(command.session_id), command.type.value.encode(), timeout,
        qualifier, command.opaque,
    )  # fmt: skip


@encode.register
def _(command: Sync) -> bytes:
    checksum = b"" if command.checksum is None else b" %d" % command.checksum
    return b"sync %b %d %d %d %d%b %d\r\n%b" % (
        _word(command.topic), command.partition, len(command.body), command.flag,
        command.message_id, checksum, command.opaque, command.body,
    )  # fmt: skip


@encode.register
def _(command: Auth) -> bytes:
    words = _word(command.user), _word(command.token), command.opaque
    return b"auth %b %b %d\r\n" % words


@encode.register
def _(command: Result) -> bytes:
    return result(command.code, command.body, command.opaque)


@encode.register
def _(command: Value) -> bytes:
    return value_head(len(command.body), command.opaque) + command.body


def encode_items(items: Iterable[Item]) -> bytes:
    """Return scanned commands as bytes again, up to the first that is none."""
    pieces = []
    for item in items:
        match item:
            case PutItem(_, topic, partition, flag, checksum, transaction, opaque, body):
                pieces.append(
                    encode(Put(topic, partition, flag, body, opaque, checksum, transaction))
                )
            case GetItem(_, topic, group, partition, offset, max_size, opaque):
                pieces.append(encode(Get(topic, group, partition, offset, max_size, opaque)))
            case BadLineItem():
                pieces.append(b"\r\n")
                break
            case OtherItem(_, command):
                pieces.append(encode(command))
    return b"".join(pieces)


def _word(text: str) -> bytes:
    if not text or " " in text or "\r" in text or "\n" in text:
        raise ProtocolError(f"{text[:32]!r} is no word")
    return text.encode()
