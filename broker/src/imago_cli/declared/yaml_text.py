"""Reads and writes the YAML of declared things: mappings of names to plain values."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_NO_TEXTS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that YAML reads as something else, in whatever case."""


def read(text: str, where: object) -> object:
    """Return what JSON or YAML says; UsageError names where it is from."""
    try:
        return json.loads(text)
    except ValueError:
        return _yaml(text, where)


def _yaml(text: str, where: object) -> object:
    try:
        import yaml
    except ModuleNotFoundError:
        raise CommandUsageError(
            f"{where}: is no JSON, and YAML needs a library that is not here",
            cure="pip install PyYAML, or write JSON (imago export --json)",
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise CommandUsageError(f"{where}: is neither JSON nor YAML: {said}") from error


def dump(tree: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{scalar(key)}:"
            yield from dump(value, indent + "  ")
        else:
            yield f"{indent}{scalar(key)}: {scalar(value)}"


def scalar(value: object) -> str:
    """Return one value; a text that YAML would take for another kind has quotation marks."""
    if isinstance(value, str) and _BARE.fullmatch(value) and value.lower() not in _NO_TEXTS:
        return value
    return json.dumps(value)
