"""Fuzz targets of MetaQ's text protocol: any bytes are commands, or refused with a reason."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_testing.frames.text import golden_metaq_frames
from imago_wire import hot
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.text import _text_py as plain
from imago_wire.text import items as items_of
from imago_wire.text.commands import Value
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode
from imago_wire.text.message import encode_message, parse_block
from imago_wire.text.transaction_key import parse_transaction_key

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from imago_wire.text.commands import Command

LINE_BYTES_MAX: Final = 256
BODY_BYTES_MAX: Final = 1024


def scan(data: bytes) -> Hashable:
    """Both twins find the same, and the same again when the bytes come in two pieces."""
    expected = plain.scan_text(data, LINE_BYTES_MAX, BODY_BYTES_MAX)
    assert hot.scan_text(data, LINE_BYTES_MAX, BODY_BYTES_MAX) == expected
    items, consumed = expected
    assert consumed <= len(data)
    kinds = tuple(item[0] for item in items)
    if items_of.BAD in kinds:
        assert kinds.index(items_of.BAD) == len(kinds) - 1
        return kinds
    first, used = hot.scan_text(data[: len(data) // 2], LINE_BYTES_MAX, BODY_BYTES_MAX)
    second, rest = hot.scan_text(data[used:], LINE_BYTES_MAX, BODY_BYTES_MAX)
    assert first + second == items
    assert used + rest == consumed
    return kinds


def commands(data: bytes) -> Hashable:
    """A decoder keeps little, and what it decoded can be written and reads the same."""
    decoder = Decoder(line_bytes_max=LINE_BYTES_MAX, body_bytes_max=BODY_BYTES_MAX)
    found: list[Command] = []
    for at in range(0, len(data), 37):
        decoder.feed(data[at : at + 37])
        try:
            while (command := decoder.next_command()) is not None:
                found.append(command)
        except ProtocolError as error:
            return (type(error).__name__, str(error)[:16], *map(_kind, found))
        assert decoder.buffered_size <= LINE_BYTES_MAX + BODY_BYTES_MAX + 2
    for command in found:
        _check_again(command)
    return tuple(map(_kind, found))


def _check_again(command: Command) -> None:
    try:
        written = encode(command)
    except ProtocolError:  # a word of an ignored place, which cannot be written
        return
    decoder = Decoder(line_bytes_max=2 * LINE_BYTES_MAX, body_bytes_max=BODY_BYTES_MAX)
    decoder.feed(written)
    assert decoder.next_command() == command


def _kind(command: Command) -> str:
    return type(command).__name__


def block(data: bytes) -> Hashable:
    """A fetched block gives whole messages, which make up the bytes again, or an error."""
    whole = b""
    try:
        for message in parse_block(data, body_bytes_max=BODY_BYTES_MAX):
            assert message.at == len(whole)
            whole += encode_message(message.id, message.flag, message.body)
    except LimitExceededError:
        return "limit"
    except ProtocolError as error:
        return type(error).__name__
    assert data.startswith(whole)
    return min(len(whole) // 64, 8)


def transaction_key(data: bytes) -> Hashable:
    """A key is refused, or its parts are written as a key that reads the same."""
    try:
        key = parse_transaction_key(data.decode("utf-8", "replace"))
    except ProtocolError:
        return None
    if key is not None:
        assert parse_transaction_key(str(key)) == key
    return type(key).__name__


def _seeds() -> dict[str, list[bytes]]:
    frames = [frame.data for frame in golden_metaq_frames()]
    blocks = [encode_message(1, 0, b"hello") + encode_message(-5, 1, b"\0\0\0\1ahello")]
    decoder = Decoder(line_bytes_max=4096, body_bytes_max=1 << 20)
    decoder.feed(b"".join(frames))
    while (command := decoder.next_command()) is not None:
        if isinstance(command, Value):
            blocks.append(command.body)
    keys = [b"null", b"TX:127.0.0.1-1795228142972-1:1", b"XID:100:676c:6271:uq"]
    more = [b"sync test 1 5 0 9999 907060870 -7\r\nhello", b"put t 0 2 0 5 TX:a:1 7\r\nhi"]
    more += [b"transaction XID:100:676c:6271:uq s1 BEGIN 5 uq 44\r\n", b"value 3 5\r\nabc"]
    return {
        "text.scan": frames + more,
        "text.commands": frames + more,
        "text.block": blocks,
        "text.transaction_key": keys,
    }


TARGETS: Final[Mapping[str, Callable[[bytes], Hashable]]] = MappingProxyType(
    {
        "text.scan": scan,
        "text.commands": commands,
        "text.block": block,
        "text.transaction_key": transaction_key,
    }
)
SEEDS: Final[Mapping[str, Sequence[bytes]]] = MappingProxyType(_seeds())
