"""Declares header classes: each field is one entry of a command's ext map.

A header class lists its fields with their types; the name on the wire is the field's name in
camel case unless `wire()` says otherwise. Numbers travel in decimal, booleans as true and false.
A field without a default must be there. Fields that a class does not know are ignored, since
clients of other versions send more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from enum import Enum
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from imago_wire.errors import ProtocolError, WrongError, WrongKindError
from imago_wire.remoting.values import Lazy, Value, value_class

Int = Annotated[int, 32]
"""A signed 32-bit number."""
Long = Annotated[int, 64]
"""A signed 64-bit number."""

_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_CAMEL = re.compile(r"_([a-z0-9])")

# Per field: sets the slot, wire name, parser (None = text as it is), default, why absence is wrong.
_PlanEntry = tuple[
    Callable[[object, object], None], str, Callable[[str], object] | None, object, str | None
]


class HeaderFieldError(ProtocolError):
    """A request's field is missing or wrong: answer SYSTEM_ERROR with this text, and go on."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"the custom field <{name}> {what}")
        self.name = name


def int_field(ext: Mapping[str, str], name: str, default: int) -> int:
    """Return a number of 32 bits that not all clients send. HeaderFieldError: it is none."""
    text = ext.get(name)
    try:
        return _int(text) if text else default
    except ValueError as error:
        raise HeaderFieldError(name, str(error)) from None


def wire(name: str, *, default: Any = MISSING) -> Any:
    """Declare a field whose name on the wire is not its own name in camel case."""
    return field(default=default, metadata={"wire": name})


class Header(Value):
    """Base of all header classes; `header` makes one of a list of fields."""

    __slots__ = ()
    _plan: ClassVar[tuple[_PlanEntry, ...]] = ()
    _names: ClassVar[tuple[tuple[str, str], ...]] = ()

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Read the class's fields out of an ext map. HeaderFieldError names the wrong one.

        An empty text counts as absent where the field is not text itself.
        """
        value = cls.__new__(cls)
        for set_field, name, parse, default, absence in cls._plan:
            text = ext.get(name)
            if text is None or (parse is not None and not text):
                if absence is not None:
                    raise HeaderFieldError(name, absence)
                set_field(value, default)
            elif parse is None:
                set_field(value, text)
            else:
                try:
                    set_field(value, parse(text))
                except ValueError as error:
                    raise HeaderFieldError(name, str(error)) from None
        return value

    def to_ext(self) -> dict[str, str]:
        """Return the ext map of this header; fields that are None are left out."""
        ext: dict[str, str] = {}
        for attribute, name in self._names:
            value = getattr(self, attribute)
            if value is not None:
                ext[name] = _as_text(value)
        return ext


_H = TypeVar("_H", bound=Header)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire, field))
def header(cls: type[_H]) -> type[_H]:
    """Make a header class: a frozen, slotted, keyword-only dataclass that knows its ext form."""
    made: Any = value_class(cls)
    made._plan = Lazy("_plan", _plan)
    made._names = Lazy("_names", _names)
    return made  # type: ignore[no-any-return]  # the same kind of class


def _plan(cls: Any) -> tuple[_PlanEntry, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_plan_entry(cls, spec, hints[spec.name]) for spec in fields(cls))


def _names(cls: Any) -> tuple[tuple[str, str], ...]:
    return tuple((spec.name, wire_name(spec)) for spec in fields(cls))


def wire_name(spec: Field[Any]) -> str:
    """Return the name on the wire of a dataclass field."""
    told: str | None = spec.metadata.get("wire")
    return told or _CAMEL.sub(lambda match: match[1].upper(), spec.name)


def _plan_entry(cls: type, spec: Field[Any], hint: object) -> _PlanEntry:
    required = spec.default is MISSING
    return (
        # The slot itself: a frozen dataclass refuses assignment, and this is also the fast way.
        getattr(cls, spec.name).__set__,
        wire_name(spec),
        _parser(hint),
        None if required else spec.default,
        "is null" if required else None,
    )


def _parser(hint: object) -> Callable[[str], object] | None:
    inner = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is Annotated:
        return _long if inner[1] == 64 else _int
    if inner:
        return _parser(inner[0])
    if hint is str:
        return None
    if hint is bool:
        return _bool
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _word_of(hint)
    raise WrongKindError(f"no ext form for a field of type {hint}")


def _word_of(kind: type[Enum]) -> Callable[[str], object]:
    words = ", ".join(str(one.value) for one in kind)

    def read(text: str) -> Enum:
        try:
            return kind(text)
        except ValueError:
            raise WrongError(f"is none of {words}: {text[:32]!r}") from None

    return read


def _int(text: str) -> int:
    return _number(text, 1 << 31)


def _long(text: str) -> int:
    return _number(text, 1 << 63)


def _number(text: str, bound: int) -> int:
    if len(text) < 10 and text.isascii() and text.isdigit():
        return int(text)  # nearly always, and no bound is so low
    if _DECIMAL.fullmatch(text):
        number = int(text)
        if -bound <= number < bound:
            return number
    raise WrongError(f"is not a number of {bound.bit_length()} bits: {text[:32]!r}")


def _bool(text: str) -> bool:
    return text.lower() == "true"  # as Java: every other word is false


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    return str(value)


@header
class RpcHeader(Header):
    """Fields that any request of 5.x may carry, and that a plain broker has no use for.

    `ns` namespace, `nsd` names already carry it, `bname` the broker that is meant, `oway` one-way.
    """

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


@header
class TopicHeader(RpcHeader):
    """Requests about a topic may also carry `lo`: the queue is a logical one."""

    lo: bool | None = None
