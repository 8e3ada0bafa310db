"""Where clients find a cluster, and what its pipelines do: read off what the operator wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_cli.kubectl.lateness import not_looked_at
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.tool import CLUSTERS, PIPELINES, Kubectl
from imago_cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ADDRESSES = ("listener", "of", "rocketmq", "metaq", "grpc", "leads to")
RUNNING = ("pipeline", "ready", "reason", "state", "epoch", "rows", "lag", "reported at")


def addresses(cluster: Cluster, *, kube: Kubectl, output: Output = Format.TABLE) -> None:
    """Show what clients write in their configuration, inside and outside, and where it leads."""
    found = kube.get(CLUSTERS, cluster)
    if late := not_looked_at(found):
        say(late)
    rows = list(_addresses(found.get("status", {})))
    if output is Format.JSON:
        print_json(rows)
    elif rows:
        print_table("", ADDRESSES, [tuple(row.values()) for row in rows])
    else:
        say("the operator has written no address yet")


def _addresses(said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if said.get("bootstrap") or said.get("zookeeper"):
        yield _row("inside", "first", said.get("bootstrap"), said.get("zookeeper"), said)
    for way in said.get("listeners", ()):
        name = way["name"]
        if way.get("bootstrap") == said.get("bootstrap"):
            continue  # of type Internal
        yield _row(name, "first", way.get("bootstrap", "not known yet"), way.get("zookeeper"), way)
        for one in way.get("brokers", ()):
            yield _row(name, one["pod"], one["rocketmq"], one["metaq"], one)


def _row(
    listener: str, of: str, rocketmq: str | None, metaq: str | None, said: Mapping[str, Any]
) -> dict[str, Any]:
    cells = (listener, of, rocketmq or "", metaq or "", said.get("grpc", ""))
    return dict(zip(ADDRESSES, (*cells, said.get("leadsTo", "")), strict=True))


def pipelines(cluster: Cluster, *, kube: Kubectl, output: Output = Format.TABLE) -> None:
    """Show the pipelines of a cluster: whether they run, how far they are, what stops them."""
    kube.get(CLUSTERS, cluster)
    mine = [p for p in kube.all_of(PIPELINES) if p["spec"]["clusterRef"]["name"] == cluster]
    rows = [_pipeline(one) for one in mine]
    if output is Format.JSON:
        print_json(rows)
    elif rows:
        print_table("", RUNNING, [tuple(row.values()) for row in rows])
    else:
        say(f"{cluster} has no pipelines in this namespace")


def _pipeline(one: Mapping[str, Any]) -> dict[str, Any]:
    said = one.get("status", {})
    listed = said.get("conditions", ())
    ready: Mapping[str, Any] = next((c for c in listed if c["type"] == "Ready"), {})
    why = ready.get("reason", "NotYetReconciled")
    if ready.get("status") != "True" and ready.get("message"):
        why = f"{why}: {ready['message']}"
    cells = (said.get(key, "") for key in ("state", "epoch", "rows", "lag", "reportedAt"))
    row = (one["metadata"]["name"], ready.get("status", "Unknown"), why, *cells)
    return dict(zip(RUNNING, row, strict=True))
