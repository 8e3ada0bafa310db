"""Writes TOML: sections of plain values, as our configuration files are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def dump(tree: Mapping[str, Mapping[str, object]]) -> str:
    """Return the text of these sections; tables inside a section become inline tables."""
    parts = []
    for section, values in tree.items():
        if values:
            lines = [f"{key_text(key)} = {value_text(value)}" for key, value in values.items()]
            parts.append("\n".join([f"[{key_text(section)}]", *lines]))
    return "\n\n".join(parts) + "\n"


def value_text(value: object) -> str:
    """Return a boolean, number, text, list or table of these as TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return "[" + ", ".join(value_text(item) for item in value) + "]"
        case dict():
            inside = ", ".join(f"{key_text(k)} = {value_text(v)}" for k, v in value.items())
            return "{ " + inside + " }" if inside else "{}"
        case _:
            return value_text(str(value))  # paths


def key_text(key: str) -> str:
    """Return the key, quoted where it has to be."""
    return key if _BARE_KEY.fullmatch(key) else value_text(key)
