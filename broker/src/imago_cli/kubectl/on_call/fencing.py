"""Members that are to serve nobody for a while: ordered, and lifted."""

from __future__ import annotations

from typing import Annotated, Any

from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.kubectl.brokers import ClusterBrokers, name_of
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.orders import order
from imago_cli.kubectl.tool import CLUSTERS, Kubectl
from imago_cli.line.declared import Argument, Option
from imago_operator.model import names

Pods = Annotated[list[str] | None, Argument(metavar="[POD]...", help="Pods of brokers.")]


def fence(
    cluster: Cluster,
    pods: Pods = None,
    everything: Annotated[bool, Option("--all", help="All members of all shards.")] = False,
    anyway: Annotated[
        bool, Option("--anyway", help="Also where clients are refused for it.")
    ] = False,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Have members keep their logs and serve nobody, until `kubectl imago unfence`.

    A member waits until its shard does without it: all others are in sync, and enough for a put.
    All members of a shard, and with --anyway any, are fenced at once, and clients are refused. No
    message is lost. Meanwhile nothing is restarted, moved or removed.
    """
    before = _ordered(kube.get(CLUSTERS, cluster))
    if bool(pods) is everything:
        raise CommandUsageError("name pods, or --all", cure=f"kubectl imago status {cluster}")
    there = {name_of(pod) for pod in ClusterBrokers(kube, cluster).pods}
    if unknown := sorted(set(pods or ()) - there):
        cure = f"these are: {', '.join(sorted(there)) or 'none'}"
        raise CommandError(f"{', '.join(unknown)}: no broker pods of {cluster}", cure=cure)
    added = ["*"] if everything else [f"{pod}!" if anyway else pod for pod in pods or ()]
    kept = [one for one in before if one.removesuffix("!") not in (pods or ())]
    text = f"{', '.join(added)} of {cluster}: fenced; `kubectl imago unfence {cluster}` lifts it"
    _order(kube, cluster, [*kept, *added], text, output)


def unfence(
    cluster: Cluster, pods: Pods = None, *, kube: Kubectl, output: Output = Format.TABLE
) -> None:
    """Have members serve again: those that are named, or all."""
    before = _ordered(kube.get(CLUSTERS, cluster))
    if pods and "*" in before:
        # Whoever is not named stays fenced.
        before = sorted(f"{name_of(pod)}!" for pod in ClusterBrokers(kube, cluster).pods)
    gone = [one for one in before if not pods or one.removesuffix("!") in pods]
    if pods and (unknown := set(pods) - {one.removesuffix("!") for one in gone}):
        cure = f"these are: {', '.join(before) or 'none'}"
        raise CommandError(f"{', '.join(sorted(unknown))}: not fenced", cure=cure)
    left = [one for one in before if one not in gone]
    text = f"{', '.join(pods or ['all'])} of {cluster}: fenced no more"
    _order(kube, cluster, left, text, output)


def _ordered(resource: dict[str, Any]) -> list[str]:
    said = (resource["metadata"].get("annotations") or {}).get(names.FENCED, "")
    return str(said).replace(",", " ").split()


def _order(kube: Kubectl, cluster: str, named: list[str], text: str, output: Format) -> None:
    value = ",".join(dict.fromkeys(named)) or None
    order(kube, CLUSTERS, cluster, {names.FENCED: value}, text, output)
