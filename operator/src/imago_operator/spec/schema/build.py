"""A checked object of the API as a value of its dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar, get_args, get_origin

from imago_operator.spec.schema import values
from imago_operator.spec.schema.fields import IntOrText, Json, api_name, bare, hints

T = TypeVar("T")
Reader = Callable[[Any], Any]


def build(cls: type[T], raw: Mapping[str, Any]) -> T:
    """Return the value of an object that fits the schema and has its defaults."""
    found: dict[str, Any] = {}
    kind: type = cls
    for name, said, read in _readers(kind):
        given = raw.get(said)
        if given is not None:
            found[name] = read(given)
    return cls(**found)


@cache
def _readers(cls: type) -> tuple[tuple[str, str, Reader], ...]:
    """Return of each field its name, its name in the API, and what makes its value."""
    assert dataclasses.is_dataclass(cls)
    return tuple(
        (field.name, api_name(field.name), _reader(bare(hints(cls)[field.name])))
        for field in dataclasses.fields(cls)
    )


def _reader(kind: Any) -> Reader:
    if get_origin(kind) is tuple:
        return partial(_items, _reader(get_args(kind)[0]))
    if kind == Json:
        return dict
    if get_origin(kind) is Mapping:
        return partial(_entries, _reader(get_args(kind)[1]))
    if kind is IntOrText:
        return _int_or_text
    if kind in (values.Quantity, values.Duration) or issubclass(kind, Enum):
        return kind  # type: ignore[no-any-return]  # a class is called with what was given
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return partial(build, kind)
    return _as_it_is


def _items(read: Reader, given: Any) -> Any:
    return tuple(map(read, given))


def _entries(read: Reader, given: Any) -> Any:
    return {name: read(item) for name, item in given.items()}


def _int_or_text(given: Any) -> Any:
    return IntOrText(value=given)


def _as_it_is(given: Any) -> Any:
    return given
