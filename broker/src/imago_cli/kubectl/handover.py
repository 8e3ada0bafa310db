"""Have another member lead a shard."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from imago_cli.clusters.moves import find_shard
from imago_cli.exits import CommandError
from imago_cli.kubectl.brokers import ClusterBrokers
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.tool import CLUSTERS, Kubectl
from imago_cli.line.declared import Argument, Option
from imago_cli.output import print_json, say


def handover(
    cluster: Cluster,
    shard: Annotated[str, Argument(help="Number or name of a shard.", show_default=False)],
    to: Annotated[
        str | None,
        Option("--to", metavar="POD", help="Pod that leads next; unless given, the best."),
    ] = None,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Hand leadership of a shard to another member, or to the best.

    Clients of both protocols see no error: the former master relays the requests of those that
    have not found the next one yet.
    """
    kube.get(CLUSTERS, cluster)
    brokers = ClusterBrokers(kube, cluster)
    found = find_shard(brokers.cluster(), shard)
    pods = brokers.of_shard(found["id"])
    if to is not None and to not in pods:
        raise CommandError(f"{found['name']} has no pod {to}", cure=f"it has: {', '.join(pods)}")
    if found["master"] is None:
        raise CommandError(
            f"{found['name']} has no master to hand over", cure=f"kubectl imago explain {cluster}"
        )
    answer, leader = _hand_over(brokers, found, pods, to)
    if output is Format.JSON:
        print_json(answer)
    else:
        to_whom = f" to {leader}" if leader else ""
        say(f"{found['name']}: handed over{to_whom}, epoch {answer['epoch']}")


def _hand_over(
    brokers: ClusterBrokers, shard: dict[str, Any], pods: list[str], to: str | None
) -> tuple[dict[str, Any], str | None]:
    """Ask the master, and nobody else, in the epoch that was seen and in no later one.

    Return what it answers, and the pod that leads from then on.
    """
    pod_of: dict[str, str] = {}
    for pod in pods:
        try:
            pod_of[brokers.ask(pod, "/admin/v1/status")["uuid"]] = pod
        except CommandError:
            if pod == to:
                raise
    master = pod_of.get(shard["master"])
    if master is None:
        raise CommandError(
            f"{shard['name']}: none of its pods that answer is its master",
            cure="kubectl get pods; try again when the shard is whole",
        )
    body = {"brokerId": shard["master"], "epoch": shard["epoch"], "requestId": uuid4().hex}
    if to is not None:
        body["target"] = next(uuid for uuid, pod in pod_of.items() if pod == to)
    answer = brokers.ask(master, "/admin/v1/handover", body)
    return answer, pod_of.get(answer.get("leader") or "")
