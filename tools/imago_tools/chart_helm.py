"""The chart through Helm: what it renders, and `manifests/install.yaml`, which is made of that.

Helm is among the programs of `e2e/cluster`; the first time they are built, which takes minutes.
`python -m imago_tools.chart_helm` writes the file if the chart is another than it was made of.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import yaml
from rig.build import programs

from imago_operator.spec.crd import as_yaml
from imago_tools.chart_files import CHART, MADE, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALL: Final = ROOT / "manifests" / "install.yaml"
NAMESPACE: Final = "imago-system"
OWN: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": NAMESPACE,
        "labels": {
            "app.kubernetes.io/part-of": "imago",
            "pod-security.kubernetes.io/enforce": "restricted",
        },
    },
}
OF_HELM: Final = ("helm.sh/", "app.kubernetes.io/managed-by")
"""Labels and annotations that say who manages an object: not Helm, where it is applied by hand."""


class RefusedError(RuntimeError):
    """Helm does not render the chart; the text is what it says."""


@cache
def helm() -> str:
    """Return the program."""
    return str(programs() / "helm")


def template(values: Mapping[str, Any], *options: str, namespace: str = NAMESPACE) -> str:
    """Return what Helm makes of the chart with these values."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as given:
        json.dump(values, given)
        given.flush()
        command = [helm(), "template", "imago", str(CHART), "-n", namespace, "-f", given.name]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout


def objects(rendered: str) -> list[dict[str, Any]]:
    """Return the objects of a rendered text."""
    return [found for found in yaml.safe_load_all(rendered) if found]


def chart_hash() -> str:
    """Return the fingerprint of everything that decides what is rendered."""
    paths = [p for p in CHART.rglob("*") if p.is_file() and p.suffix != ".md"]
    digest = hashlib.sha256()
    for path in sorted(paths):
        if "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(CHART)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def head() -> str:
    """Return the first lines of `install.yaml`, which name the chart that it is made of."""
    return (
        f"# {MADE} from charts/imago with its own values, in namespace {NAMESPACE}.\n"
        f"# kubectl apply --server-side -f manifests/install.yaml\n# chart: sha256:{chart_hash()}\n"
    )


def install() -> str:
    """Return `install.yaml`."""
    made = [OWN, *map(_by_hand, objects(template({}, "--no-hooks")))]
    return head() + "---\n".join(as_yaml(each) for each in made)


def _by_hand(made: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what Helm alone needs, in pods' templates, too."""
    metadata = made["metadata"]
    for notes in ("labels", "annotations"):
        kept = {k: v for k, v in metadata.get(notes, {}).items() if not k.startswith(OF_HELM)}
        metadata = {k: v for k, v in metadata.items() if k != notes}
        metadata |= {notes: kept} if kept else {}
    found = made | {"metadata": metadata}
    template = found.get("spec", {}).get("template")
    if isinstance(template, dict):
        found["spec"] = found["spec"] | {"template": _by_hand(template)}
    return found


def main() -> int:
    if INSTALL.exists() and INSTALL.read_text().startswith(head()):
        return 0
    INSTALL.write_text(install(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
