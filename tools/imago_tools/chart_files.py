"""What `make docs` writes into the chart: values, README, rights and definitions.

The schema of the values is the source of the first two, `imago_operator.rights` of the third, the
resources' types of the last: `python -m imago_tools.chart_files [FOLDER]`.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_operator.rights import RIGHTS, Where, rules
from imago_operator.spec import crd

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "imago"
MADE: Final = "Made by `make docs`"
WIDTH: Final = 96

Schema = dict[str, Any]


def schema() -> Schema:
    """Return the schema of the chart's values."""
    read: Schema = json.loads((CHART / "values.schema.json").read_text())
    return read


def leaves(node: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every value that can be set: its path, and its part of the schema."""
    for name, part in node["properties"].items():
        at = f"{path}.{name}" if path else name
        if "properties" in part:
            yield from leaves(part, at)
        elif "default" in part:
            yield at, part


def values() -> str:
    """Return `values.yaml`: every value with its default, and what it is."""
    head = (
        f"# {MADE} from values.schema.json, where a value is added or changed.\n"
        "# Every value that may be set, with its default.\n"
    )
    return head + "\n".join(_entries(schema(), ""))


def _entries(node: Schema, indent: str) -> Iterator[str]:
    for name, part in node["properties"].items():
        if "properties" not in part and "default" not in part:
            continue
        said = textwrap.wrap(part["description"], WIDTH - len(indent))
        yield from ([] if indent else [""])
        yield from (f"{indent}# {line}" for line in said)
        if "properties" in part:
            yield f"{indent}{name}:"
            yield from _entries(part, indent + "  ")
        else:
            yield textwrap.indent(crd.as_yaml({name: part["default"]}), indent).rstrip("\n")
    if not indent:
        yield ""


def readme() -> str:
    """Return the chart's README, with a table of all values."""
    intro = (CHART / "files" / "README.head.md").read_text()
    rows = [
        f"| `{path}` | {_default(part)} | {_meaning(part)} |" for path, part in leaves(schema())
    ]
    table = "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])
    return f"<!-- {MADE} from values.schema.json and files/README.head.md. -->\n{intro}\n{table}\n"


def _default(part: Schema) -> str:
    return f"`{json.dumps(part['default'])}`".replace("|", "\\|")


def _meaning(part: Schema) -> str:
    one_of = part.get("enum")
    choice = f" One of {', '.join(f'`{each}`' for each in one_of)}." if one_of else ""
    said: str = part["description"]
    return (said + choice).replace("|", "\\|")


def rights() -> str:
    """Return the rules of the operator's roles, by the part of them they belong to."""
    return f"# {MADE} from imago_operator.rights.\n" + crd.as_yaml(
        {where.value: rules(where) for where in Where}
    )


PLACES: Final = {
    Where.NAMESPACE: "In every operated namespace",
    Where.PIPELINES: "There, with `pipelines.enabled`",
    Where.SPARK_OPERATOR: "There, with `pipelines.sparkOperator`, too",
    Where.OWN: "In the operator's own namespace",
    Where.FACTS: "In the cluster's scope, unless `scope.namespaces` is set without "
    "`scope.readClusterFacts`",
    Where.CLUSTER: "In the cluster's scope, unless `scope.namespaces` is set",
}


def rights_page() -> str:
    """Return the page about the operator's rights."""
    parts = [
        "# Rights of the operator",
        f"{MADE} from `imago_operator.rights`, as are the chart's roles. A test compares the table "
        "with the\noperator's calls: no right is missing, and each is needed.",
    ]
    for where, heading in PLACES.items():
        parts.append(f"## {heading}")
        rows = [
            f"| {right.group or 'core'} | {', '.join(right.resources)} | {', '.join(right.verbs)} "
            f"| {right.why} |"
            for right in RIGHTS
            if right.where is where
        ]
        parts.append(
            "\n".join(["| group | resources | verbs | what for |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def files() -> dict[str, str]:
    """Return every file that is made, by its path below the repository's root."""
    chart = "charts/imago"
    copies = {f"{chart}/files/crds/{name}": text for name, text in crd.files().items()}
    return {
        f"{chart}/values.yaml": values(),
        f"{chart}/README.md": readme(),
        f"{chart}/files/rights.yaml": rights(),
        "docs/reference/rights.md": rights_page(),
        **copies,
    }


def main(arguments: list[str]) -> int:
    """Write the files below a folder."""
    root = Path(arguments[0]) if arguments else ROOT
    for name, text in files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
