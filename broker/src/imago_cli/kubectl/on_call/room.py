"""How full disks are: as brokers see them, and as Kubernetes has their claims."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from imago_cli.exits import CommandError, Exit
from imago_cli.kubectl.brokers import ClusterBrokers
from imago_cli.kubectl.on_call.serving import ACCEPTED, REFUSED, asked
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.tool import CLUSTERS, Kubectl, KubectlError
from imago_cli.output import print_json, print_table, say
from imago_operator.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping

DISKS = ("pod", "used", "of", "share", "level", "puts", "claim")
CLAIMS = "persistentvolumeclaims"
GIB = 1 << 30


def disks(cluster: Cluster, *, kube: Kubectl, output: Output = Format.TABLE) -> None:
    """Show how full the disk of each broker is, the fullest first, and how its claim is.

    Claims that no pod has are listed as well: those of members that have left, or that sleep. Exit
    code 1: a disk takes no messages any more, or a broker does not answer.
    """
    kube.get(CLUSTERS, cluster)
    claims = _claims(kube, cluster)
    brokers = ClusterBrokers(kube, cluster)
    if not (brokers.pods or claims):
        cure = f"kubectl imago explain {cluster} says why"
        raise CommandError(f"{cluster} has no broker pods", cure=cure)
    rows = [_disk(pod, said, claims.pop(pod, "")) for pod, (_, said) in asked(brokers).items()]
    rows.sort(key=lambda row: str(row["share"]).rjust(8), reverse=True)
    ends = any(row["puts"] != ACCEPTED for row in rows)
    rows += [_row(pod, "", "", "", "", "no pod", said) for pod, said in sorted(claims.items())]
    if output is Format.JSON:
        print_json(rows)
    else:
        print_table("", DISKS, [tuple(row.values()) for row in rows])
    if ends:
        sys.exit(Exit.FAILED)


def _claims(kube: Kubectl, cluster: str) -> dict[str, str]:
    """Return what Kubernetes says of each claim, by the pod that it is for."""
    labels = f"{names.CLUSTER_LABEL}={cluster},{names.COMPONENT_LABEL}={names.BROKER}"
    try:
        found = kube.all_of(CLAIMS, labels=labels)
    except KubectlError as error:
        say(f"claims are not shown: {error.message}")
        return {}
    return {one["metadata"]["name"].removeprefix("data-"): _claim(one) for one in found}


def _claim(one: Mapping[str, Any]) -> str:
    said = one.get("status") or {}
    has = (said.get("capacity") or {}).get("storage", "")
    asks = one["spec"]["resources"]["requests"]["storage"]
    parts = [has or said.get("phase", "Pending")]
    if has != asks:
        parts.append(f"asks for {asks}")
    parts += [each["type"] for each in said.get("conditions") or () if each["status"] == "True"]
    return ", ".join(parts)


def _disk(pod: str, said: dict[str, Any] | CommandError, claim: str) -> dict[str, Any]:
    if isinstance(said, CommandError):
        return _row(pod, "", "", "", "", f"unknown: {said.message}", claim)
    disk = said["disk"]
    used, total = (f"{disk[key] / GIB:.1f} GiB" for key in ("usedBytes", "totalBytes"))
    share = f"{100 * disk['usedShare']:.1f} %"
    state = ACCEPTED if disk["writable"] else REFUSED
    return _row(pod, used, total, share, disk["level"], state, claim)


def _row(*cells: str) -> dict[str, Any]:
    return dict(zip(DISKS, cells, strict=True))
