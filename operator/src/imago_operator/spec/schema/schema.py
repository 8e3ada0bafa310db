"""What an API server does with a structural schema: fill in defaults, refuse what does not fit.

The operator does the same before it trusts an object: an object may be older than the schema,
or come from a file that no server has seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.spec.schema.fields import Schema


class Problem(NamedTuple):
    """What is wrong, and where: `spec.brokers.shards`."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def with_defaults(schema: Schema, value: Any) -> Any:
    """Return the value with the defaults that a server would have filled in."""
    if isinstance(value, Mapping):
        return _object_with_defaults(schema, value)
    if isinstance(value, (list, tuple)) and "items" in schema:
        return [with_defaults(schema["items"], item) for item in value]
    return value


def _object_with_defaults(schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(value)
    inner: Mapping[str, Schema] = schema.get("properties", {})
    for name, part in inner.items():
        if found.get(name) is None:
            # A server drops a null where there is a default, and refuses it elsewhere.
            found.pop(name, None)
            if "default" not in part:
                continue
            found[name] = part["default"]
        found[name] = with_defaults(part, found[name])
    return found


def problems(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    """Yield everything about the value that the schema does not allow."""
    if schema.get("x-kubernetes-int-or-string"):
        yield from _int_or_text(schema, value, path)
        return
    kind = schema.get("type", "object")
    if not _is_a(kind, value):
        yield Problem(path, f"must be {_ARTICLE[kind]}, not {value!r:.40}")
    elif kind == "object":
        yield from _object(schema, value, path)
    elif kind == "array":
        yield from _array(schema, value, path)
    elif kind == "string":
        yield from _text(schema, value, path)
    elif kind == "integer":
        yield from _number(schema, value, path)


_ARTICLE = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (Mapping,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
}


def _is_a(kind: str, value: Any) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _int_or_text(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    if _is_a("string", value):
        yield from _text(schema, value, path)
    elif not _is_a("integer", value):
        yield Problem(path, f"must be a whole number or a text, not {value!r:.40}")


def _object(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(f"{path}.{name}", "is required")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    inner: Mapping[str, Schema] = schema.get("properties", {})
    entries: Schema | None = schema.get("additionalProperties")
    for name, part in value.items():
        if name in inner:
            yield from problems(inner[name], part, f"{path}.{name}")
        elif entries is not None:
            yield from problems(entries, part, f"{path}[{name}]")
        else:
            yield Problem(f"{path}.{name}", "is no field of it")
    if len(value) > schema.get("maxProperties", len(value)):
        yield Problem(path, f"must have at most {schema['maxProperties']} entries")


def _array(schema: Schema, value: list[Any], path: str) -> Iterator[Problem]:
    if len(value) > schema.get("maxItems", len(value)):
        yield Problem(path, f"must have at most {schema['maxItems']} items")
    if len(value) < schema.get("minItems", 0):
        yield Problem(path, f"must have at least {schema['minItems']} items")
    for index, item in enumerate(value):
        yield from problems(schema["items"], item, f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        told_apart: list[Any] = [[_get(item, key) for key in keys] for item in value]
    elif schema.get("x-kubernetes-list-type") == "set":
        told_apart = list(value)
    else:
        return
    for index, item in enumerate(told_apart):
        if item in told_apart[:index]:
            yield Problem(f"{path}[{index}]", "is there twice")


def _get(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, Mapping) else None


def _text(schema: Schema, value: str, path: str) -> Iterator[Problem]:
    choices = schema.get("enum")
    if choices and value not in choices:
        yield Problem(path, f"must be one of {', '.join(choices)}, not {value!r:.40}")
    if len(value) > schema.get("maxLength", len(value)):
        yield Problem(path, f"must have at most {schema['maxLength']} characters")
    if len(value) < schema.get("minLength", 0):
        yield Problem(path, f"must have at least {schema['minLength']} characters")
    pattern = schema.get("pattern")
    if pattern and not re.search(pattern.removesuffix("$") + r"\Z", value, re.ASCII):
        yield Problem(path, f"{value!r:.60} must look like {pattern}")


def _number(schema: Schema, value: int, path: str) -> Iterator[Problem]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        yield Problem(path, f"must be at least {low}, not {value}")
    if high is not None and value > high:
        yield Problem(path, f"must be at most {high}, not {value}")
    if schema.get("format") == "int64" and not -(1 << 63) <= value < 1 << 63:
        yield Problem(path, "does not fit into 64 bits")
