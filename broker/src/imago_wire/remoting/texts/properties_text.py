"""Configuration as text, `key=value` a line, read by the rules of Java's property files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLANK: Final = " \t\f"
_KEY: Final = re.compile(r"((?:[^=: \t\f\\]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def encode_properties_text(entries: Mapping[str, str]) -> bytes:
    """Return one `key=value` line an entry, unescaped, as the original brokers write them."""
    return "".join(f"{key}={value}\n" for key, value in entries.items()).encode()


def decode_properties_text(data: bytes) -> dict[str, str]:
    """Return the entries: comments dropped, continued lines joined, escapes resolved."""
    entries: dict[str, str] = {}
    for line in _logical_lines(data.decode(errors="replace")):
        match = _KEY.match(line)
        if match is not None:
            entries[_ESCAPE.sub(_resolved, match[1])] = _ESCAPE.sub(_resolved, match[2])
    return entries


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANK)
        if not parts and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line])
        parts.clear()
    if parts:
        yield "".join(parts)


def _resolved(match: re.Match[str]) -> str:
    told = match[1]
    if len(told) == 5:
        unit = int(told[1:], 16)
        return "?" if 0xD800 <= unit < 0xE000 else chr(unit)
    return _CONTROL.get(told, told)
