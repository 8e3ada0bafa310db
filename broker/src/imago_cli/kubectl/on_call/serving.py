"""Whether puts are refused, and how full disks are: asked of the brokers at this moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import typer

from imago_cli.exits import CommandError, Exit
from imago_cli.kubectl.brokers import AT_ONCE, ClusterBrokers, name_of, shard_of
from imago_cli.kubectl.options import Cluster, Context, Format, Kubeconfig, Namespace, Output
from imago_cli.kubectl.tool import CLUSTERS, Kubectl
from imago_cli.output import print_json, print_table, role_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PUTS = ("shard", "puts", "why", "gets", "why not", "said by")
DISKS = ("pod", "used", "of", "share", "level", "puts")
STATUS = "/admin/v1/status"
GIB = 1 << 30


def puts(
    cluster: Cluster,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TABLE,
) -> None:
    """Show for each shard whether messages are accepted now, and why not: its master says so.

    Exit code 1: some shard refuses them, or no broker of it answers.
    """
    brokers = _brokers(Kubectl(namespace, context, kubeconfig), cluster)
    rows = [_serving(shard, pods) for shard, pods in _by_shard(_asked(brokers)).items()]
    _print(PUTS, rows, output)
    if any(row["puts"] != "accepted" for row in rows):
        raise typer.Exit(Exit.FAILED)


def disks(
    cluster: Cluster,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TABLE,
) -> None:
    """Show how full the disk of each broker is, the fullest first.

    Exit code 1: one of them takes no messages any more, or a broker does not answer.
    """
    brokers = _brokers(Kubectl(namespace, context, kubeconfig), cluster)
    asked = _asked(brokers)
    rows = [_disk(pod, said) for pod, (_, said) in asked.items()]
    rows.sort(key=lambda row: str(row["share"]).rjust(8), reverse=True)
    _print(DISKS, rows, output)
    if any(row["puts"] != "accepted" for row in rows):
        raise typer.Exit(Exit.FAILED)


def _brokers(kube: Kubectl, cluster: str) -> ClusterBrokers:
    kube.get(CLUSTERS, cluster)
    found = ClusterBrokers(kube, cluster)
    if not found.pods:
        raise CommandError(
            f"{cluster} has no broker pods", cure=f"kubectl imago explain {cluster} says why"
        )
    return found


Answer = tuple[int, "dict[str, Any] | CommandError"]
"""The shard of a pod, and what its broker says, or why it says nothing."""


def _asked(brokers: ClusterBrokers) -> dict[str, Answer]:
    def one(pod: Mapping[str, Any]) -> Answer:
        try:
            return shard_of(pod), brokers.ask(name_of(pod), STATUS)
        except CommandError as error:
            return shard_of(pod), error

    pods = sorted(brokers.pods, key=lambda pod: (shard_of(pod), name_of(pod)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(map(name_of, pods), pool.map(one, pods), strict=True))


def _by_shard(asked: Mapping[str, Answer]) -> dict[int, dict[str, Answer]]:
    found: dict[int, dict[str, Answer]] = {}
    for pod, answer in asked.items():
        found.setdefault(answer[0], {})[pod] = answer
    return found


def _serving(shard: int, pods: Mapping[str, Answer]) -> dict[str, Any]:
    """Return what the master says; where nobody leads, what the others say."""
    told = {pod: said for pod, (_, said) in pods.items() if isinstance(said, dict)}
    leading = {pod: said for pod, said in told.items() if said["role"] == "master"}
    pod, said = next(iter({**leading, **told}.items()), ("", None))
    name = f"shard-{shard}"
    if said is None:
        why = next(error.message for _, error in pods.values() if isinstance(error, CommandError))
        return dict(zip(PUTS, (name, "unknown", why, "unknown", why, ""), strict=True))
    cells: list[str] = []
    for kind in ("puts", "gets"):
        refused = [] if leading and said[kind]["accepted"] else said[kind]["reasons"]
        if not leading and not refused:
            refused = [said["waitsFor"] or "the shard has no master"]
        cells += ["refused" if refused else "accepted", "; ".join(refused)]
    role = role_name(said["role"])
    return dict(zip(PUTS, (name, *cells, f"{pod}, {role}"), strict=True))


def _disk(pod: str, said: dict[str, Any] | CommandError) -> dict[str, Any]:
    if isinstance(said, CommandError):
        return dict(zip(DISKS, (pod, "", "", "", "", f"unknown: {said.message}"), strict=True))
    disk = said["disk"]
    used, total = (f"{disk[key] / GIB:.1f} GiB" for key in ("usedBytes", "totalBytes"))
    share = f"{100 * disk['usedShare']:.1f} %"
    state = "accepted" if disk["writable"] else "refused"
    return dict(zip(DISKS, (pod, used, total, share, disk["level"], state), strict=True))


def _print(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], output: Format) -> None:
    if output is Format.JSON:
        print_json(list(rows))
    else:
        print_table("", columns, [tuple(row.values()) for row in rows])
