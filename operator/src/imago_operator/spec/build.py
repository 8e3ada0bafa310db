"""A checked object of the API as a value of its dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

from imago_operator.spec import values
from imago_operator.spec.fields import IntOrText, Json, api_name, bare, hints

T = TypeVar("T")


def build(cls: type[T], raw: Mapping[str, Any]) -> T:
    """Return the value of an object that fits the schema and has its defaults."""
    found: dict[str, Any] = {}
    assert dataclasses.is_dataclass(cls)
    for field in dataclasses.fields(cls):
        given = raw.get(api_name(field.name))
        if given is not None:
            found[field.name] = _value(bare(hints(cls)[field.name]), given)
    return cls(**found)


def _value(kind: Any, given: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], item) for item in given)
    if kind == Json:
        return dict(given)
    if get_origin(kind) is Mapping:
        return {name: _value(get_args(kind)[1], item) for name, item in given.items()}
    if kind is IntOrText:
        return IntOrText(value=given)
    if kind in (values.Quantity, values.Duration) or issubclass(kind, Enum):
        return kind(given)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return build(kind, given)
    return given
