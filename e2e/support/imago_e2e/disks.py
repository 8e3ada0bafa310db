"""Disks of brokers that run full, and grow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from imago_e2e.kube import until

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers

GIB: Final = 1 << 30
FILLER: Final = "/data/filler"
GROWN_SECONDS_MAX: Final = 60.0
_FILL: Final = """\
import os, sys
path, claimed = sys.argv[1], int(sys.argv[2])
disk = os.statvfs("/data")
size = disk.f_blocks * disk.f_frsize
if size > claimed:
    sys.exit(f"{size} bytes where {claimed} were claimed: not filled, it is a disk of others, too")
file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
end = os.fstat(file).st_size
os.posix_fallocate(file, end, max(1, (disk.f_bavail - 64) * disk.f_frsize))
"""
_SIZE: Final = """\
import os
disk = os.statvfs("/data")
print(disk.f_blocks * disk.f_frsize)
"""


def fill(brokers: Brokers, pod: str) -> None:
    """Take all room of a disk; KubeError, and nothing is taken, where it is no disk of its own."""
    claimed = str(claimed_bytes(brokers, pod))
    brokers.kube.execute(brokers.namespace, pod, "python3", "-c", _FILL, FILLER, claimed)


def refuses(brokers: Brokers, pod: str) -> bool:
    """Whether a broker refuses messages, since its disk is full."""
    return not brokers.ask(pod, "/admin/v1/status")["disk"]["writable"]


def empty(brokers: Brokers, pod: str) -> None:
    """Give that room back."""
    brokers.kube.execute(brokers.namespace, pod, "rm", "-f", FILLER)


def size_bytes(brokers: Brokers, pod: str) -> int:
    """Return the size of a broker's disk, as the broker sees it."""
    return int(brokers.kube.execute(brokers.namespace, pod, "python3", "-c", _SIZE))


def claimed_bytes(brokers: Brokers, pod: str) -> int:
    """Return the size of the volume that Kubernetes has for a pod."""
    claim = brokers.kube.get("pvc", f"data-{pod}", "-n", brokers.namespace)
    text = str(claim["status"]["capacity"]["storage"])
    return int(text.removesuffix("Gi")) * GIB if text.endswith("Gi") else int(text)


def grow(brokers: Brokers, gib: int) -> float:
    """Have the cluster ask for so much more on every disk; return seconds until all have it."""
    named = ("imc", brokers.name, "-n", brokers.namespace)
    now = str(brokers.kube.get(*named)["spec"]["brokers"]["storage"]["size"])
    wanted = int(now.removesuffix("Gi")) + gib
    patch = json.dumps({"spec": {"brokers": {"storage": {"size": f"{wanted}Gi"}}}})
    brokers.kube.run("patch", *named, "--type=merge", "-p", patch)

    def grown() -> bool:
        return all(claimed_bytes(brokers, pod) == wanted * GIB for pod in brokers.names())

    return until(grown, f"all disks have {wanted} GiB", seconds_max=GROWN_SECONDS_MAX)
