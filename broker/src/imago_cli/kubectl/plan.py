"""What an edit would bring about: nothing is changed."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imago_cli.exits import Exit
from imago_cli.kubectl.edit import edit_of
from imago_cli.kubectl.options import (
    Context,
    Format,
    Kubeconfig,
    Namespace,
    Output,
)
from imago_cli.kubectl.tool import CLUSTERS, Kubectl, KubectlError
from imago_cli.output import print_json, print_line, print_table
from imago_operator.desired import OperatorInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = ("what", "about", "how")
UNSEEN = (
    "brokers were not asked: what a restart waits for, and what a shard that goes still has",
    "differences between pods and the spec that were there before the edit",
)


def plan(
    file: Annotated[
        str, typer.Option("--filename", "-f", help="Edited manifests, as for kubectl apply.")
    ],
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what an edit would do, and do nothing.

    The server itself says whether it would take the edit (a dry run, admission included). What
    follows is compared by the operator's own functions: objects, restarts and why, settings that
    change without one, shards that come and go. Exit code 1: it would be refused.
    """
    kube = Kubectl(namespace, context, kubeconfig)
    found = [_looked_at(kube, one) for one in kube.dry_run(file)]
    if output is Format.JSON:
        print_json(found)
    else:
        for one in found:
            _print(one)
    if any(one["refused"] for one in found):
        raise typer.Exit(Exit.FAILED)


def _looked_at(kube: Kubectl, after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said about one manifest."""
    metadata = after["metadata"]
    said: dict[str, Any] = {
        "kind": after["kind"],
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "refused": "",
        "effects": [],
        "unseen": [],
    }
    if after["kind"] != "ImagoCluster":
        said["unseen"] = ["the server takes it; effects are shown of an ImagoCluster only"]
        return said
    there = Kubectl(metadata.get("namespace"), kube.context, kube.kubeconfig)
    before = _before(there, metadata["name"])
    edit = edit_of(before, after, _operator(before))
    if isinstance(edit, str):
        return said | {"refused": edit}
    effects = [{"what": e.what, "about": e.about, "how": e.how} for e in edit.effects()]
    return said | {"effects": effects, "unseen": list(UNSEEN)}


def _before(kube: Kubectl, name: str) -> dict[str, Any] | None:
    try:
        return kube.get(CLUSTERS, name)
    except KubectlError as error:
        if "(NotFound)" in error.message:
            return None
        raise


def _operator(before: Mapping[str, Any] | None) -> OperatorInfo:
    """Return the operator that works on the cluster, as its status tells."""
    own = importlib.metadata.version("imago")
    said = (before or {}).get("status", {})
    version = said.get("operatorVersion") or own
    running = {said["version"]} if said.get("version") else set()
    return OperatorInfo(version=version, supported=tuple(sorted(running - {version})))


def _print(said: Mapping[str, Any]) -> None:
    name = f"{said['kind']} {said['name']}"
    if said["refused"]:
        print_line(f"{name}: the operator refuses it: {said['refused']}")
        return
    if said["effects"]:
        rows = [tuple(effect.values()) for effect in said["effects"]]
        print_table(name, COLUMNS, rows)
    elif said["kind"] == "ImagoCluster":
        print_line(f"{name}: nothing would change")
    else:
        print_line(name)
    for text in said["unseen"]:
        print_line(f"  not seen: {text}")
