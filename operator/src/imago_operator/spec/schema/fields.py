"""Fields of custom resources, and the structural schema that a dataclass of them stands for.

A resource is a frozen dataclass whose fields are made by `described`. Names are snake_case in
Python and camelCase in the API. From the same fields come the schema of the custom resource
definition, `kubectl explain`, the defaults, the checks in Python and the reference page.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from imago_operator.spec.schema import values

TEXT_SIZE_MAX: Final = 253
ITEMS_MAX: Final = 64
KEY: Final = "imago"

Json = Mapping[str, Any]
"""A part whose content Kubernetes itself checks: a piece of a pod, an affinity."""
Schema = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IntOrText:
    """A number or a text, like `int-or-string`: the value of a setting or of a resource."""

    value: int | str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a field means and what it may be; sizes are characters, items or entries."""

    doc: str
    low: int | None = None
    high: int | None = None
    pattern: str | None = None
    one_of: tuple[Any, ...] = ()
    size_max: int | None = None
    size_min: int | None = None
    item_pattern: str | None = None
    item_size_max: int | None = None
    item_low: int | None = None
    item_high: int | None = None
    map_key: str | None = None
    """The field that tells the items of a list apart; a list without one is a set or plain."""
    plain_list: bool = False


def described(doc: str, *, default: Any = dataclasses.MISSING, **bounds: Any) -> Any:
    """Return a dataclass field; without `default` it is required, with None it is optional."""
    metadata = {KEY: Bounds(doc=doc, **bounds)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def api_name(name: str) -> str:
    """Return the API's spelling: `min_in_sync` is `minInSync`, `from_` is `from`."""
    head, *rest = name.strip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


@cache
def hints(cls: type) -> dict[str, Any]:
    """Types of a dataclass's fields, by Python name."""
    return get_type_hints(cls)


def schema_of(cls: type, doc: str = "") -> Schema:
    """Return the structural schema of a dataclass."""
    properties, required = {}, []
    for field in dataclasses.fields(cls):
        name, bounds = api_name(field.name), field.metadata[KEY]
        properties[name] = _property(hints(cls)[field.name], bounds, field)
        if is_required(field):
            required.append(name)
    schema: Schema = {"type": "object", "description": doc or _first_line(cls)}
    if required:
        schema["required"] = required
    return schema | {"properties": properties}


def is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def bare(kind: Any) -> Any:
    """Return X of `X | None`."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(arg for arg in get_args(kind) if arg is not type(None))
    return kind


def to_json(value: Any) -> Any:
    """Return a value of a resource in the API's form; fields that are None are left out."""
    if isinstance(value, (values.Quantity, values.Duration)):
        return value.text
    if isinstance(value, IntOrText):
        return value.value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {api_name(name): to_json(item) for name, item in pairs if item is not None}
    return value


def chosen(value: Any) -> dict[str, Any]:
    """Return the fields of a resource that are not at their defaults, in the API's form.

    What a user said, and nothing that a later version adds or fills in.
    """
    found = {}
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if given != default:
            nested = _is_part(given)
            found[api_name(field.name)] = chosen(given) if nested else to_json(given)
    return found


def _is_part(value: Any) -> bool:
    scalars = (values.Quantity, values.Duration, IntOrText)
    return dataclasses.is_dataclass(value) and not isinstance(value, scalars)


def _property(kind: Any, bounds: Bounds, field: dataclasses.Field[Any]) -> Schema:
    schema = {"description": bounds.doc} | _schema(bare(kind), bounds)
    schema["description"] = bounds.doc
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if _is_part(default):
        # All that is inside: a server checks the rules on a default before it completes it.
        schema["default"] = _without_empty(to_json(default))
    elif default not in (None, dataclasses.MISSING, (), {}):
        schema["default"] = to_json(default)
    return schema


def _without_empty(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    found = {key: _without_empty(item) for key, item in value.items()}
    return {key: item for key, item in found.items() if item not in ({}, [])}


def _schema(kind: Any, bounds: Bounds) -> Schema:
    if get_origin(kind) is tuple:
        return _list(get_args(kind)[0], bounds)
    if kind == Json:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if get_origin(kind) is Mapping:
        return _map(get_args(kind)[1], bounds)
    if kind is IntOrText:
        text = _given(maxLength=bounds.size_max or TEXT_SIZE_MAX, pattern=bounds.pattern)
        return {"x-kubernetes-int-or-string": True} | text
    if dataclasses.is_dataclass(kind) and kind not in (values.Quantity, values.Duration):
        assert isinstance(kind, type)
        return schema_of(kind)
    return _scalar(kind, bounds)


def _scalar(kind: Any, bounds: Bounds) -> Schema:
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        wide = {"format": "int64"} if bounds.high is None or bounds.high >= 1 << 31 else {}
        return {"type": "integer"} | wide | _given(minimum=bounds.low, maximum=bounds.high)
    if kind is values.Quantity:
        return _text(values.QUANTITY_PATTERN, values.TEXT_SIZE_MAX)
    if kind is values.Duration:
        return _text(values.DURATION_PATTERN, values.TEXT_SIZE_MAX)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [member.value for member in kind]}
    if bounds.one_of:
        return {"type": "string", "enum": list(bounds.one_of)}
    size = _given(minLength=bounds.size_min)
    return _text(bounds.pattern, bounds.size_max or TEXT_SIZE_MAX) | size


def _text(pattern: str | None, size_max: int) -> Schema:
    return {"type": "string", "maxLength": size_max} | _given(pattern=pattern)


def _list(kind: Any, bounds: Bounds) -> Schema:
    item = Bounds(
        doc="",
        pattern=bounds.item_pattern,
        size_max=bounds.item_size_max,
        size_min=1,
        low=bounds.item_low,
        high=bounds.item_high,
    )
    sizes = {"maxItems": bounds.size_max or ITEMS_MAX} | _given(minItems=bounds.size_min)
    schema = {"type": "array"} | sizes | {"items": _schema(kind, item)}
    if bounds.map_key:
        return schema | {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [bounds.map_key],
        }
    return schema | {"x-kubernetes-list-type": "atomic" if bounds.plain_list else "set"}


def _map(kind: Any, bounds: Bounds) -> Schema:
    item = Bounds(doc="", size_max=bounds.item_size_max, pattern=bounds.item_pattern)
    return {
        "type": "object",
        "maxProperties": bounds.size_max or ITEMS_MAX,
        "additionalProperties": _schema(kind, item),
    }


def _given(**found: Any) -> Schema:
    return {key: value for key, value in found.items() if value is not None}


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]
