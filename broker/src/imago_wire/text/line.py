"""One command line to a command, or to what becomes one when its body has arrived.

MetaQ's rules, kept exactly because clients and operators type these lines:

- words are parted by single spaces, so two spaces make an empty word; empty words at the end are
  dropped, as Java's split does;
- the first letter of the first word chooses the parser, then the word must be right, but every
  word beginning with ``q`` is ``quit``, and with ``v``, other than ``value``, is ``version``;
- surplus words are ignored by get, offset, version, stats, result and value, and are errors in
  put, sync and transaction, which accept listed counts only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_wire.errors import ProtocolError
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
    TransactionType,
    Value,
    Version,
)
from imago_wire.text.numbers import parse_i32, parse_i64
from imago_wire.text.transaction_key import parse_transaction_key

if TYPE_CHECKING:
    from collections.abc import Callable


class Pending(NamedTuple):
    """A command whose body of ``size`` bytes follows its line."""

    size: int
    finish: Callable[[bytes], Command]


def parse_line(line: bytes) -> Command | Pending:
    """Parse a line without its CR LF. ProtocolError: it is no command; the peer is closed."""
    try:
        words = line.decode().rstrip(" ").split(" ")
    except UnicodeDecodeError as error:
        raise ProtocolError("the line is no UTF-8") from error
    parser = _PARSERS.get(words[0][:1])
    if parser is None:
        raise ProtocolError(f"unknown command {words[0][:32]!r}")
    return parser(words)


def _put(words: list[str]) -> Pending:
    _expect(words, "put", (6, 7, 8))
    topic, partition, size = _name(words[1]), parse_i32(words[2]), _size(words[3])
    flag, opaque = parse_i32(words[4]), parse_i32(words[-1])
    checksum: int | None = None
    transaction: str | None = None
    if len(words) == 8:
        checksum, transaction = parse_i32(words[5]), _transaction_key(words[6])
    elif len(words) == 7 and _is_number_start(words[5]):
        checksum = parse_i32(words[5])
    elif len(words) == 7:
        transaction = _transaction_key(words[5])
    return Pending(
        size, lambda body: Put(topic, partition, flag, body, opaque, checksum, transaction)
    )


def _get(words: list[str]) -> Get:
    _expect_at_least(words, "get", 7)
    return Get(
        _name(words[1]),
        _name(words[2]),
        parse_i32(words[3]),
        parse_i64(words[4]),
        parse_i32(words[5]),
        parse_i32(words[6]),
    )


def _offset(words: list[str]) -> Offset:
    _expect_at_least(words, "offset", 6)
    return Offset(
        _name(words[1]),
        _name(words[2]),
        parse_i32(words[3]),
        parse_i64(words[4]),
        parse_i32(words[5]),
    )


def _version_or_value(words: list[str]) -> Version | Pending:
    if words[0] != "value":
        return Version(parse_i32(words[1]) if len(words) > 1 else None)
    _expect_at_least(words, "value", 3)
    size, opaque = _size(words[1]), parse_i32(words[2])
    return Pending(size, lambda body: Value(body, opaque))


def _stats_or_sync(words: list[str]) -> Stats | Pending:
    if words[0] != "stats":
        return _sync(words)
    item = words[1] if len(words) > 1 else ""
    return Stats(item, parse_i32(words[2]) if len(words) > 2 else None)


def _sync(words: list[str]) -> Pending:
    _expect(words, "sync", (7, 8))
    topic, partition, size = _name(words[1]), parse_i32(words[2]), _size(words[3])
    flag, message_id, opaque = parse_i32(words[4]), parse_i64(words[5]), parse_i32(words[-1])
    checksum = parse_i32(words[6]) if len(words) == 8 else None
    return Pending(
        size, lambda body: Sync(topic, partition, flag, message_id, body, opaque, checksum)
    )


def _quit(_words: list[str]) -> Quit:
    return Quit()


def _transaction(words: list[str]) -> Transaction:
    _expect(words, "transaction", (5, 6, 7))
    try:
        kind = TransactionType(words[3])
    except ValueError as error:
        raise ProtocolError(f"unknown transaction type {words[3][:32]!r}") from error
    timeout_s: int | None = None
    qualifier: str | None = None
    if len(words) == 7:
        timeout_s, qualifier = parse_i32(words[4]), words[5]
    elif len(words) == 6 and words[4].isascii() and words[4].isdigit():
        # An all-digit qualifier is misread as a time-out, by the original too.
        timeout_s = parse_i32(words[4])
    elif len(words) == 6:
        qualifier = words[4]
    key, opaque = _transaction_key(words[1]), parse_i32(words[-1])
    return Transaction(key, words[2], kind, opaque, timeout_s, qualifier)


def _auth(words: list[str]) -> Auth:
    _expect(words, "auth", (4,))
    return Auth(_name(words[1]), _name(words[2]), parse_i32(words[3]))


def _result(words: list[str]) -> Pending:
    _expect_at_least(words, "result", 4)
    code, size, opaque = parse_i32(words[1]), _size(words[2]), parse_i32(words[3])
    return Pending(size, lambda body: Result(code, body, opaque))


_PARSERS: dict[str, Callable[[list[str]], Command | Pending]] = {
    "p": _put,
    "g": _get,
    "o": _offset,
    "v": _version_or_value,
    "s": _stats_or_sync,
    "q": _quit,
    "t": _transaction,
    "r": _result,
    "a": _auth,
}


def _expect(words: list[str], word: str, counts: tuple[int, ...]) -> None:
    if words[0] != word:
        raise ProtocolError(f"unknown command {words[0][:32]!r}")
    if len(words) not in counts:
        raise ProtocolError(f"{word} of {len(words)} words")


def _expect_at_least(words: list[str], word: str, count: int) -> None:
    if words[0] != word:
        raise ProtocolError(f"unknown command {words[0][:32]!r}")
    if len(words) < count:
        raise ProtocolError(f"{word} of {len(words)} words")


def _name(word: str) -> str:
    """Check a topic or group: any text but an empty one or one with line ends."""
    if not word or "\r" in word or "\n" in word:
        raise ProtocolError(f"{word[:32]!r} is no name")
    return word


def _size(word: str) -> int:
    size = parse_i32(word)
    if size < 0:
        raise ProtocolError(f"body of {size} bytes")
    return size


def _is_number_start(word: str) -> bool:
    return word[:1] == "-" or (word[:1].isascii() and word[:1].isdigit())


def _transaction_key(word: str) -> str:
    parse_transaction_key(word)
    return word
