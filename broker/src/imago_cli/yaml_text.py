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
    """Return what JSON or YAML says; UsageError names where it is from, or a key that is twice."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            raise _twice(where, next(key for key in keys if keys.count(key) > 1))
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
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

    class OnceLoader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
        """Refuses keys that are given twice; YAML's own loader takes the last one."""

        def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            lines: dict[tuple[str, str], int] = {}
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue  # it is refused for that
                line = key.start_mark.line + 1
                if before := lines.get((key.tag, key.value)):
                    raise _twice(where, key.value, f", in lines {before} and {line}")
                lines[key.tag, key.value] = line
            return node

    try:
        return yaml.load(text, OnceLoader)  # noqa: S506  a SafeLoader
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise CommandUsageError(f"{where}: is neither JSON nor YAML: {said}") from error


def _twice(where: object, key: str, at: str = "") -> CommandUsageError:
    return CommandUsageError(f"{where}: {key:.60} is given twice{at}", cure="keep one of them")


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


def document(value: object) -> str:
    """Return any value that JSON can have as a document, objects and lists of them in lines."""
    if isinstance(value, dict) and value:
        return "\n".join(dump(value))
    if not isinstance(value, list) or not value:
        return scalar(value)
    items = [document(one).split("\n") for one in value]
    return "\n".join("\n  ".join(["- " + first, *rest]) for first, *rest in items)
