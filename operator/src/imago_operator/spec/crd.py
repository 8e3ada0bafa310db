"""Custom resource definitions, made from the kinds: `python -m imago_operator.spec.crd FOLDER`."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from imago_operator.spec.kinds import GROUP, KINDS, VERSION, VERSIONS, Kind

if TYPE_CHECKING:
    from imago_operator.spec.schema.column import Column
    from imago_operator.spec.schema.fields import Schema
    from imago_operator.spec.schema.rule import Rule

HEAD: Final = "# Made by `make docs` from operator/src/imago_operator/spec.\n"
METADATA: Final = {"type": "object"}


def definition(kind: Kind[Any]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    subresources: dict[str, Any] = {"status": {}}
    if kind.scale:
        subresources["scale"] = {
            "specReplicasPath": kind.scale.spec,
            "statusReplicasPath": kind.scale.status,
            "labelSelectorPath": kind.scale.selector,
        }
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == VERSION,
            "schema": {"openAPIV3Schema": root_schema(kind)},
            "subresources": subresources,
            "additionalPrinterColumns": [_column(column) for column in kind.columns],
        }
        for name in VERSIONS
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name, "labels": {"app.kubernetes.io/part-of": "imago"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["imago"],
            },
            "conversion": {"strategy": "None"},
            "versions": versions,
        },
    }


def root_schema(kind: Kind[Any]) -> Schema:
    """Return the schema of the whole resource, rules included."""
    root: Schema = {
        "type": "object",
        "description": kind.doc,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{' or '.join(VERSIONS)}."},
            "kind": {"type": "string", "description": f"{kind.name}."},
            "metadata": METADATA,
            "spec": copy.deepcopy(kind.spec_schema),
            "status": copy.deepcopy(kind.status_schema),
        },
    }
    for rule in kind.rules:
        _node(root, rule).setdefault("x-kubernetes-validations", []).append(
            {"rule": rule.cel, "message": rule.message}
        )
    return root


def _node(root: Schema, rule: Rule) -> Schema:
    node = root
    for name in filter(None, rule.path.split(".")):
        node = node["properties"][name.removesuffix("[]")]
        if name.endswith("[]"):
            node = node["items"]
    return node


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return shown | ({"priority": column.priority} if column.priority else {})


def as_yaml(value: Any) -> str:
    """Return a manifest as people write it: in the order given, without anchors."""
    apart = json.loads(json.dumps(value))  # a value that occurs twice would become an anchor
    text: str = yaml.safe_dump(apart, sort_keys=False, width=100, allow_unicode=True)
    return text


def files() -> dict[str, str]:
    """Return the content of every file of `manifests/crds`, by name."""
    return {f"{kind.plural}.yaml": HEAD + as_yaml(definition(kind)) for kind in KINDS}


def main(arguments: list[str]) -> int:
    """Write the files into a folder."""
    folder = Path(arguments[0] if arguments else "manifests/crds")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
