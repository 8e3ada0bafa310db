"""What is taken out of a report before it is written: whatever may be a secret.

Secrets themselves are never read. What is left are values that people write where they do not
belong: variables of containers, annotations, lines of logs.
"""

from __future__ import annotations

import re
from typing import Any, Final

LEFT_OUT: Final = "(left out)"
OURS: Final = ("IMAGO__", "POD_", "ZOO_", "JVMFLAGS")
"""Variables that the operator sets: what they say is in the resource, or a file's name."""
NOTES: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
"""Annotations that repeat what somebody has written, secrets with it."""
_NAMED: Final = r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key)[\w.-]*"
_SAID: Final = re.compile(rf"(?i)(\"?{_NAMED}\"?\s*[:=]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;]+)")
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]+-----|\Z)", re.DOTALL
)
_IN_URL: Final = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
"""What stands behind a user's name in an address."""
_OPTION: Final = re.compile(rf"(?i)(--?{_NAMED} )(?!-)[^\s,;]+")
_SIGNED: Final = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")
"""A JSON Web Token, as service accounts have."""
_NAME: Final = re.compile(rf"(?i){_NAMED}")
_FILE: Final = re.compile(r"(?i)(file|name|ref|path|folder|count|every|overlap|at|seconds)$")
"""How names end that say where a secret is, or how long it counts: these are no secrets."""


def redacted(value: Any) -> Any:
    """Return a value of JSON without what may be a secret."""
    if isinstance(value, dict):
        if _is_variable(value):
            return value | {"value": LEFT_OUT}
        return {k: _kept(k, v) for k, v in value.items() if k != "managedFields"}
    if isinstance(value, list):
        return [redacted(one) for one in _without_arguments(value)]
    return scrubbed(value) if isinstance(value, str) else value


def _kept(key: str, value: Any) -> Any:
    hides = _NAME.fullmatch(key) and not _FILE.search(key)
    if key in NOTES or (hides and isinstance(value, (str, int))):
        return LEFT_OUT
    return redacted(value)


def _without_arguments(words: list[Any]) -> list[Any]:
    """Return the words of a command without those behind an option that names a secret."""
    before = ["", *words][: len(words)]
    return [
        LEFT_OUT if isinstance(one, str) and _names_secret(said) else one
        for said, one in zip(before, words, strict=True)
    ]


def _names_secret(word: Any) -> bool:
    option = isinstance(word, str) and word.startswith("-") and "=" not in word
    return option and bool(_NAME.fullmatch(word.lstrip("-"))) and not _FILE.search(word)


def _is_variable(value: dict[str, Any]) -> bool:
    """Whether it is a container's variable that somebody has given a value."""
    name = value.get("name")
    given = isinstance(name, str) and isinstance(value.get("value"), str)
    return given and len(value) == 2 and not str(name).startswith(OURS)


def scrubbed(text: str) -> str:
    """Return a text without values that stand behind the name of a secret."""
    text = _KEY.sub(LEFT_OUT, text)
    text = _BEARER.sub(rf"\1 {LEFT_OUT}", text)
    text = _SIGNED.sub(LEFT_OUT, _IN_URL.sub(rf"\1{LEFT_OUT}@", text))
    text = _OPTION.sub(_after_option, text)
    return _SAID.sub(_without, text)


def _without(found: re.Match[str]) -> str:
    name = found[1].rstrip(' :=\t"').lstrip('"')
    return found[0] if _FILE.search(name) else f"{found[1]}{LEFT_OUT}"


def _after_option(found: re.Match[str]) -> str:
    return found[0] if _FILE.search(found[1].rstrip()) else f"{found[1]}{LEFT_OUT}"
