"""JSON as RocketMQ's peers write it, which is a little more than JSON.

Objects may have bare numbers and whole objects as keys (`{0:"a"}`, `{{"queueId":3}:1}`), strings
may hold raw control characters. What is plain JSON is read by the fast parser; only the rest
comes to the one here. Whatever the bytes are, nothing but ProtocolError leaves `parse`.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias, Union

import orjson

from imago_wire.errors import ProtocolError

DEPTH_MAX: Final = 64
"""How deep the values of a text that is not plain JSON may nest."""

Json: TypeAlias = Union[bool, int, float, str, list["Json"], dict[str, "Json"], None]  # noqa: UP007  # a forward reference

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?", re.ASCII)
_SURROGATES: Final = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")
_LONE_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_PLAIN_ESCAPES: Final = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_WORDS: Final[dict[str, Json]] = {"true": True, "false": False, "null": None}
_INT_BOUND: Final = 1 << 63


class BareKey(str):
    """A key that is written without quotes: a number, or a whole object as JSON text."""

    __slots__ = ()


def parse(data: bytes | str) -> Json:
    """Return the value that the text holds; bare keys come as BareKey."""
    try:
        value: Json = orjson.loads(data)
    except orjson.JSONDecodeError:
        text = data if isinstance(data, str) else data.decode(errors="replace")
        return _Reader(text).read()
    return value


def dump(value: Json, *, standard: bool = False) -> bytes:
    """Return the value as compact JSON with the keys in order.

    BareKeys stand without quotes, unless `standard` asks for what every JSON parser reads: then
    they are quoted like the others, and what is not ASCII is escaped.
    """
    text = b"".join(_written(value, standard))
    if standard and not text.isascii():
        text = _NOT_ASCII.sub(_escaped, text.decode()).encode()
    return text


def _written(value: Json, standard: bool) -> list[bytes]:
    if isinstance(value, dict):
        parts = [b"{"]
        for key in sorted(value):
            if len(parts) > 1:
                parts.append(b",")
            bare = isinstance(key, BareKey) and not standard
            parts.append(key.encode() if bare else orjson.dumps(str(key)))
            parts.append(b":")
            parts += _written(value[key], standard)
        parts.append(b"}")
        return parts
    if isinstance(value, list):
        return [b"[", b",".join(b"".join(_written(item, standard)) for item in value), b"]"]
    return [orjson.dumps(value)]


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


class _Reader:
    """One pass over one text. `_at` is where the next token starts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> Json:
        value = self._value(DEPTH_MAX)
        self._skip_space()
        if self._at != len(self._text):
            raise self._error("more text after the value")
        return value

    def _value(self, depth: int) -> Json:
        if depth == 0:
            raise self._error("nested too deep")
        match self._peek():
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case '"':
                return self._string()
            case _:
                return self._scalar()

    def _object(self, depth: int) -> dict[str, Json]:
        value: dict[str, Json] = {}
        self._at += 1
        while not self._closes("}", first=not value):
            key = self._key(depth)
            if self._peek() != ":":
                raise self._error("no colon after a key")
            self._at += 1
            value[key] = self._value(depth - 1)
        return value

    def _array(self, depth: int) -> list[Json]:
        value: list[Json] = []
        self._at += 1
        while not self._closes("]", first=not value):
            value.append(self._value(depth - 1))
        return value

    def _closes(self, end: str, *, first: bool) -> bool:
        """Step over the end, or over the comma that must stand before anything but the first."""
        found = self._peek()
        if found == end:
            self._at += 1
            return True
        if not first:
            if found != ",":
                raise self._error(f"neither a comma nor {end}")
            self._at += 1
        return False

    def _key(self, depth: int) -> str:
        found = self._peek()
        if found == '"':
            return self._string()
        if found == "{":
            if depth == 1:
                raise self._error("nested too deep")
            return BareKey(dump(self._object(depth - 1)).decode())
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise self._error("no key")
        self._at = match.end()
        return BareKey(match[0])

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("a string without an end")
        self._at = match.end()
        inner = match[1]
        return _unescaped(inner) if "\\" in inner else inner

    def _scalar(self) -> Json:
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise self._error("no value")
        self._at = match.end()
        if match[1] or match[2]:
            return _finite(float(match[0]))
        number = int(match[0])
        # The fast parser turns what needs more than 64 bits into a float as well.
        return number if -_INT_BOUND <= number < 2 * _INT_BOUND else float(number)

    def _peek(self) -> str:
        self._skip_space()
        return self._text[self._at : self._at + 1]

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _error(self, what: str) -> ProtocolError:
        return ProtocolError(f"bad JSON at character {self._at}: {what}")


def _unescaped(inner: str) -> str:
    try:
        text = _ESCAPE.sub(_unescape_one, inner)
    except KeyError as error:
        raise ProtocolError(f"bad JSON: unknown escape {error}") from None
    text = _SURROGATES.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text
    )
    return _LONE_SURROGATE.sub("?", text)  # as Java does when it writes one


def _unescape_one(match: re.Match[str]) -> str:
    told = match[1]
    if len(told) == 5:
        return chr(int(told[1:], 16))
    return _PLAIN_ESCAPES[told]


def _finite(number: float) -> float:
    if number in (float("inf"), float("-inf")):
        raise ProtocolError("bad JSON: a number without bounds")
    return number
