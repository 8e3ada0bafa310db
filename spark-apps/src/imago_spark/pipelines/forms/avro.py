"""Avro's binary form, of one schema: bytes in, values of JSON out.

Times become texts of ISO 8601, decimals texts of digits, bytes base64: what Spark reads from JSON
as timestamp, decimal and binary. Schemas that refer to themselves are taken; readers' are not.
"""

from __future__ import annotations

import base64
import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[["_Bytes"], Any]

BLOCK_ITEMS_MAX: Final = 1 << 20
"""Items that take no bytes (null) could be as many as one likes."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER_BYTES: Final = 10
"""Of a long at most, seven bits each."""


class AvroError(ValueError):
    """A schema that is none, or a body that is not of it."""


class _Bytes:
    """A body, and how far it is read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise AvroError("it ends too soon")
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self) -> int:
        found = 0
        for place in range(_NUMBER_BYTES):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise AvroError("a number is too long")


@cache
def decoder(schema: str) -> Callable[[bytes], Any]:
    """Return what decodes bodies of a schema, given as JSON. AvroError: it is none."""
    try:
        read = _Compiled().of(json.loads(schema), "")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise AvroError(f"is no schema of Avro: {error}") from error

    def decode(body: bytes) -> Any:
        found = _Bytes(body)
        try:
            value = read(found)
        except RecursionError:
            raise AvroError("it is nested too deeply") from None
        except (UnicodeDecodeError, OverflowError, IndexError) as error:
            raise AvroError(str(error)) from None
        if found.at != len(body):
            raise AvroError(f"{len(body) - found.at} bytes are left over")
        return value

    return decode


class _Compiled:
    """A schema as functions, one for each of its types."""

    def __init__(self) -> None:
        self._named: dict[str, Read] = {}

    def of(self, schema: Any, space: str) -> Read:
        if isinstance(schema, list):
            return _union([self.of(one, space) for one in schema])
        if isinstance(schema, str):
            return self._by_name(schema, space)
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.of(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_type(schema, kind, space)
        if kind == "array":
            return _items(self.of(schema["items"], space))
        if kind == "map":
            return _entries(self.of(schema["values"], space))
        return _logical(schema, self._by_name(kind, space))

    def _by_name(self, name: str, space: str) -> Read:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not space else f"{space}.{name}"
        known = self._named
        key = full if full in known else name
        if key not in known:
            raise AvroError(f"{name!r} is no type")

        def read(found: _Bytes) -> Any:
            return known[key](found)  # a type may be named within itself, before it is whole

        return read

    def _named_type(self, schema: dict[str, Any], kind: str, space: str) -> Read:
        name = schema["name"]
        space = name.rpartition(".")[0] or schema.get("namespace", space)
        full = name if "." in name or not space else f"{space}.{name}"
        self._named[full] = _unfinished
        if kind == "enum":
            made = _symbol(tuple(schema["symbols"]))
        elif kind == "fixed":
            size = int(schema["size"])
            made = _logical(schema, lambda found: found.take(size))
        else:
            fields = [(one["name"], self.of(one["type"], space)) for one in schema["fields"]]
            made = lambda found: {name: read(found) for name, read in fields}  # noqa: E731
        self._named[full] = made
        return made


def _unfinished(_: _Bytes) -> Any:
    raise AvroError("a type is used before it is known")


def _bool(found: _Bytes) -> bool:
    return found.take(1) != b"\0"


def _text(found: _Bytes) -> str:
    return found.take(found.number()).decode()


_PRIMITIVES: Final[dict[str, Read]] = {
    "null": lambda _: None,
    "boolean": _bool,
    "int": _Bytes.number,
    "long": _Bytes.number,
    "float": lambda found: struct.unpack("<f", found.take(4))[0],
    "double": lambda found: struct.unpack("<d", found.take(8))[0],
    "bytes": lambda found: found.take(found.number()),
    "string": _text,
}


def _union(branches: list[Read]) -> Read:
    def read(found: _Bytes) -> Any:
        at = found.number()
        if not 0 <= at < len(branches):
            raise AvroError(f"a union has no branch {at}")
        return branches[at](found)

    return read


def _symbol(symbols: tuple[str, ...]) -> Read:
    def read(found: _Bytes) -> str:
        at = found.number()
        if not 0 <= at < len(symbols):
            raise AvroError(f"an enum has no symbol {at}")
        return symbols[at]

    return read


def _blocks(found: _Bytes) -> Any:
    left = BLOCK_ITEMS_MAX
    while count := found.number():
        if count < 0:
            count = -count
            found.number()  # its bytes
        left -= count
        if left < 0:
            raise AvroError(f"it has more than {BLOCK_ITEMS_MAX} items")
        yield from range(count)


def _items(read: Read) -> Read:
    return lambda found: [read(found) for _ in _blocks(found)]


def _entries(read: Read) -> Read:
    return lambda found: {_text(found): read(found) for _ in _blocks(found)}


def _logical(schema: dict[str, Any], read: Read) -> Read:
    kind = schema.get("logicalType")
    micros = {"timestamp-millis": 1000, "timestamp-micros": 1}
    if kind in micros:
        step = micros[kind]
        return lambda found: (_EPOCH + timedelta(microseconds=read(found) * step)).isoformat()
    if kind == "date":
        return lambda found: (date(1970, 1, 1) + timedelta(days=read(found))).isoformat()
    if kind == "decimal":
        scale = int(schema.get("scale", 0))
        return lambda found: str(
            Decimal(int.from_bytes(read(found), "big", signed=True)).scaleb(-scale)
        )
    return read


def as_json(value: Any) -> str:
    """Return a value as JSON; AvroError: it has a number that JSON does not have."""
    try:
        return json.dumps(value, default=_base64, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise AvroError(str(error)) from None


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()
