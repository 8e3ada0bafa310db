"""Declares bodies: JSON objects as frozen values.

A body class lists its fields with their types; the key in the JSON is the field's name in camel
case unless `wire()` says otherwise. Types may be bool, int, float, str, enumerations (by name, or
by place where a peer writes numbers), other bodies, tuples and frozensets of these, mappings with
text, whole numbers or bodies as keys, and any of them or None. Readers accept numbers written as
text, ignore keys that they do not know, and take for absent null and, where it may be absent, a
word that an enumeration does not have. None is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from math import isfinite
from types import NoneType
from typing import (
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from imago_wire.errors import ProtocolError, WrongError, WrongKindError
from imago_wire.remoting import fastjson
from imago_wire.remoting.fastjson import BareKey, Json
from imago_wire.remoting.fields import wire, wire_name
from imago_wire.remoting.peer import Language, language_of
from imago_wire.remoting.values import Lazy, Value, value_class

_LONG_MAX = (1 << 63) - 1
_FALSE_AND_TRUE = {"false": False, "true": True}


class BodyError(ProtocolError):
    """A body is not what its code needs: answer SYSTEM_ERROR with this text, and go on."""


class _UnknownWordError(WrongError):
    """An enumeration has no such name or place: clients of other versions write theirs."""


class _Form(NamedTuple):
    """How values of one type are read from JSON and written to it."""

    read: Callable[[Json], Any]
    write: Callable[[Any], Json]
    is_body: bool = False


class _Entry(NamedTuple):
    attribute: str
    key: str
    form: _Form
    set_field: Callable[[object, object], None]
    default: Any
    factory: Any


class Body(Value):
    """Base of all body classes; `body` makes one of a list of fields."""

    __slots__ = ()
    _entries: ClassVar[tuple[_Entry, ...]] = ()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a whole body. BodyError says what is wrong with it."""
        return cls.from_json(_parsed(data))

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Read one object that was parsed already."""
        if not isinstance(value, dict):
            raise BodyError(f"{cls.__name__} is not an object")
        made = cls.__new__(cls)
        for entry in cls._entries:
            entry.set_field(made, _entry_value(cls, entry, value.get(entry.key)))
        return made

    def to_json(self) -> dict[str, Json]:
        """Return the object; fields that are None are left out."""
        value: dict[str, Json] = {}
        for attribute, key, form, *_ in self._entries:
            item = getattr(self, attribute)
            if item is not None and (written := form.write(item)) is not None:
                value[key] = written
        return value

    def encode(self, *, standard: bool = False) -> bytes:
        """Return the bytes; `standard` quotes keys that are numbers or objects."""
        return fastjson.dump(self.to_json(), standard=standard)


_B = TypeVar("_B", bound=Body)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire, field))
def body(cls: type[_B]) -> type[_B]:
    """Make a body class: a frozen, slotted, keyword-only dataclass that knows its JSON form."""
    return _prepared(value_class(cls))


@dataclass_transform(order_default=True, frozen_default=True, field_specifiers=(wire, field))
def key_body(cls: type[_B]) -> type[_B]:
    """Make a body class whose values are ordered and given by place, to serve as keys."""
    return _prepared(dataclass(frozen=True, slots=True, order=True)(cls))


def _prepared(cls: type[_B]) -> type[_B]:
    made: Any = cls
    made._entries = Lazy("_entries", _entries)
    return cls


def _entries(cls: Any) -> tuple[_Entry, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Entry(
            spec.name,
            wire_name(spec),
            _form(hints[spec.name]),
            getattr(cls, spec.name).__set__,
            spec.default,
            spec.default_factory,
        )
        for spec in fields(cls)
    )


def _entry_value(cls: type, entry: _Entry, value: Json) -> Any:
    if value is None:
        if entry.default is not MISSING:
            return entry.default
        if entry.factory is not MISSING:
            return entry.factory()
        raise BodyError(f"{cls.__name__}.{entry.key} is missing")
    try:
        return entry.form.read(value)
    except _UnknownWordError:
        if entry.default is not MISSING:
            return entry.default  # as if its client had not said it
        raise BodyError(f"{cls.__name__}.{entry.key} is wrong: {str(value)[:64]}") from None
    except (ValueError, KeyError, IndexError, TypeError, OverflowError):
        raise BodyError(f"{cls.__name__}.{entry.key} is wrong: {str(value)[:64]}") from None


def _parsed(text: bytes | str) -> Json:
    try:
        return fastjson.parse(text)
    except ProtocolError as error:
        raise BodyError(str(error)) from None


def _form(hint: Any) -> _Form:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return _AS_IT_IS
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is tuple or origin is frozenset:
        return _list_form(origin, _form(inner[0]))
    if origin is Mapping:
        return _mapping_form(inner[0], _form(inner[1]))
    if inner:
        return _form(next(kind for kind in inner if kind is not NoneType))
    if issubclass(hint, Enum):
        return _enum_form(hint)
    return _Form(hint.from_json, lambda value: cast("Body", value).to_json(), is_body=True)


def _list_form(kind: type, item: _Form) -> _Form:
    ordered = kind is tuple

    def read(value: Json) -> Any:
        if not isinstance(value, list):
            raise WrongKindError("not a list")
        return kind(item.read(one) for one in value)

    def write(value: Any) -> Json:
        return [item.write(one) for one in (value if ordered else sorted(value))]

    return _Form(read, write)


def _mapping_form(key_kind: Any, item: _Form) -> _Form:
    read_key, write_key = _key_form(key_kind)

    def read(value: Json) -> Any:
        if not isinstance(value, dict):
            raise WrongKindError("not an object")
        return {read_key(key): item.read(one) for key, one in value.items() if one is not None}

    def write(value: Any) -> Json:
        return {write_key(key): item.write(one) for key, one in value.items()}

    return _Form(read, write)


def _key_form(kind: Any) -> tuple[Callable[[str], Any], Callable[[Any], str]]:
    if kind is str:
        return str, str
    if kind is int:
        return _read_int, lambda key: BareKey(int(key))
    return (
        lambda key: kind.from_json(_parsed(key)),
        lambda key: BareKey(fastjson.dump(key.to_json()).decode()),
    )


def _enum_form(kind: type[Enum]) -> _Form:
    places = list(kind)
    words = {one.value for one in places}

    def read(value: Json) -> Enum:
        if isinstance(value, str):
            if value not in words:
                raise _UnknownWordError
            return kind(value)
        place = _read_int(value)
        if not 0 <= place < len(places):
            raise _UnknownWordError
        return places[place]

    return _Form(read, lambda value: cast("Json", value.value))


def _read_bool(value: Json) -> bool:
    if isinstance(value, str):
        return _FALSE_AND_TRUE[value.lower()]
    return bool(_read_int(value))


def _read_int(value: Json) -> int:
    if isinstance(value, (list, dict, float)) or (isinstance(value, str) and len(value) > 20):
        raise WrongKindError("not a whole number")
    number = int(value)  # type: ignore[arg-type]  # None raises the TypeError that is wanted
    if not -_LONG_MAX - 1 <= number <= _LONG_MAX:
        raise WrongError("not a number of 64 bits")
    return number


def _read_float(value: Json) -> float:
    if isinstance(value, (list, dict)) or value is None:
        raise WrongKindError("not a number")
    number = float(value)
    if not isfinite(number):
        raise WrongError("not a finite number")
    return number


def _read_str(value: Json) -> str:
    return value if isinstance(value, str) else fastjson.dump(value).decode()


def _write_language(value: Language) -> Json:
    # The original tools cannot read a name that they do not know; leaving it out they bear.
    return None if value is Language.UNKNOWN else value.name


def _unchanged(value: Any) -> Any:
    return value


_AS_IT_IS = _Form(_unchanged, _unchanged)
_SCALARS: dict[Any, _Form] = {
    bool: _Form(_read_bool, _unchanged),
    int: _Form(_read_int, _unchanged),
    float: _Form(_read_float, _unchanged),
    str: _Form(_read_str, _unchanged),
    Language: _Form(language_of, _write_language),
}
