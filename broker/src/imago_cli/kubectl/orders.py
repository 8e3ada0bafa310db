"""Orders to the operator: annotations that it reads, set by the caller's own rights."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from imago_cli.exits import CommandError
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.tool import CLUSTERS, REBALANCES, Kubectl
from imago_cli.line.declared import Argument, Option
from imago_cli.output import print_json, say
from imago_operator.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def pause(cluster: Cluster, *, kube: Kubectl, output: Output = Format.TABLE) -> None:
    """Stop the operator from changing a cluster. Brokers and clients continue."""
    order(
        kube,
        CLUSTERS,
        cluster,
        {names.PAUSE: "true"},
        f"{cluster}: paused; `kubectl imago resume {cluster}` ends that",
        output,
    )


def resume(cluster: Cluster, *, kube: Kubectl, output: Output = Format.TABLE) -> None:
    """Let the operator change a cluster again."""
    order(
        kube,
        CLUSTERS,
        cluster,
        {names.PAUSE: None},
        f"{cluster}: the operator works on it again",
        output,
    )


def restart(
    cluster: Cluster,
    pod: Annotated[str | None, Option("--pod", help="Only this pod; unless given, all.")] = None,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Restart brokers in the operator's order: one by one, each master after a handover.

    The operator asks each broker whether it may stop. Windows and manual approval do not delay a
    restart that is ordered here.
    """
    stamp = {names.RESTART: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    if pod is None:
        text = f"{cluster}: all brokers are restarted one by one; `kubectl imago explain {cluster}`"
        order(kube, CLUSTERS, cluster, stamp, text, output)
        return
    labels = kube.get("pods", pod)["metadata"].get("labels") or {}
    if labels.get(names.CLUSTER_LABEL) != cluster:
        raise CommandError(
            f"pod {pod} is not one of {cluster}",
            cure=f"kubectl get pods -l {names.CLUSTER_LABEL}={cluster}",
        )
    text = f"{pod}: is restarted when it may be; `kubectl imago explain {cluster}`"
    order(kube, "pods", pod, stamp, text, output)


def approve(
    cluster: Cluster,
    desired: Annotated[
        str | None,
        Argument(metavar="[ID]", help="Id to approve; optional if one action waits."),
    ] = None,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Approve a waiting action: a held restart or a proposed rebalance.

    ID is that of `status.pendingApprovals`, or the name of an ImagoRebalance.
    """
    waiting = pending(kube, kube.get(CLUSTERS, cluster))
    chosen = _chosen(cluster, desired, waiting)
    text = f"{cluster}: approved {chosen['id']}: {chosen['summary']}"
    if chosen["kind"] == "Rebalance":
        order(kube, REBALANCES, chosen["id"], {names.APPROVE: "true"}, text, output)
    else:
        order(kube, CLUSTERS, cluster, {names.APPROVE: chosen["id"]}, text, output)


def pending(kube: Kubectl, cluster: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the actions that wait for a person: id, kind, summary."""
    found = list(cluster.get("status", {}).get("pendingApprovals", ()))
    return found + [
        {
            "id": one["metadata"]["name"],
            "kind": "Rebalance",
            "summary": f"{one['spec']['mode']} of {_shards(one['spec'].get('shards'))}",
        }
        for one in kube.all_of(REBALANCES)
        if one["spec"]["clusterRef"]["name"] == cluster["metadata"]["name"]
        and one["spec"].get("approval") == "Manual"
        and one.get("status", {}).get("phase") == "Proposed"
    ]


def _chosen(cluster: str, desired: str | None, waiting: list[dict[str, str]]) -> dict[str, str]:
    if not waiting:
        raise CommandError(f"nothing of {cluster} waits for approval", cure="nothing to do")
    if desired is None and len(waiting) == 1:
        return waiting[0]
    listed = ", ".join(f"{one['id']} ({one['summary']})" for one in waiting)
    if desired is None:
        raise CommandError(f"several things wait: {listed}", cure="name one of them")
    for one in waiting:
        if one["id"] == desired:
            return one
    raise CommandError(f"nothing called {desired} waits", cure=f"these wait: {listed}")


def order(
    kube: Kubectl,
    kind: str,
    name: str,
    notes: Mapping[str, str | None],
    text: str,
    output: Format,
) -> None:
    """Write annotations, and say what was ordered."""
    kube.annotate(kind, name, notes)
    if output is Format.JSON:
        print_json({"kind": kind, "name": name, "annotations": dict(notes)})
    else:
        say(text)


def _shards(numbers: Sequence[int] | None) -> str:
    return ", ".join(f"shard-{number}" for number in numbers) if numbers else "all shards"
