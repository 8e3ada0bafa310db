"""The reference page of the custom resources: `python -m imago_operator.spec.reference FILE`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_operator.spec.kinds import API_VERSION, KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.spec.schema.fields import Schema

HEAD: Final = f"""\
# Custom resources

Group and version: `{API_VERSION}`. All resources are namespaced and belong to the category
`imago`. `kubectl explain` shows the same texts. A field without a default is optional unless
marked *required*. `*` stands for any key, `[]` for the items of a list.
"""


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join("".join(_kind(kind)) for kind in KINDS)


def _kind(kind: Kind[Any]) -> Iterator[str]:
    scale = " `kubectl scale` works." if kind.scale else ""
    yield f"\n## {kind.name} (`{kind.short}`)\n\n{kind.doc}{scale}\n"
    for part, schema in (("spec", kind.spec_schema), ("status", kind.status_schema)):
        yield f"\n### {part}\n\n| field | type | default | meaning |\n|---|---|---|---|\n"
        yield from (f"| {' | '.join(row)} |\n" for row in _rows(schema, ""))
    yield "\n### Further rules\n\n| where | message |\n|---|---|\n"
    for rule in kind.rules:
        yield f"| `{rule.path or 'metadata.name'}` | {rule.message} |\n"


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        at = f"{path}{name}"
        default = "*required*" if name in required else _default(part)
        yield f"`{at}`", _type(part), default, _escaped(part["description"])
        yield from _rows(part, f"{at}.")
        yield from _rows(part.get("items", {}), f"{at}[].")
        yield from _rows(part.get("additionalProperties", {}), f"{at}.*.")


def _default(part: Schema) -> str:
    default = part.get("default")
    if default in (None, {}, []):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type(part: Schema) -> str:
    if part.get("x-kubernetes-int-or-string"):
        return "number or text"
    if "enum" in part:
        return ", ".join(f"`{choice}`" for choice in part["enum"])
    if part.get("x-kubernetes-preserve-unknown-fields"):
        return "Kubernetes object"
    if part["type"] == "array":
        return f"list of {_type(part['items'])}, ≤ {part['maxItems']}"
    if "additionalProperties" in part:
        return f"map to {_type(part['additionalProperties'])}, ≤ {part['maxProperties']}"
    return _bounded(part)


def _bounded(part: Schema) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    if low is not None and high is not None:
        return f"{part['type']}, {low}…{high}"
    return f"{part['type']}, ≥ {low}" if low else str(part["type"])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def main(arguments: list[str]) -> int:
    """Write the page."""
    target = Path(arguments[0] if arguments else "docs/reference/crds.md")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
