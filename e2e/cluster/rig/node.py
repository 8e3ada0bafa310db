"""A node as a machine: containerd, kubelet, kube-proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rig import wires
from rig.keys import KEYS, kubeconfig
from rig.places import DNS_ADDRESS, POD_RANGE, STATE, VOLUMES

_CNI_PROGRAMS = "/usr/lib/cni"
SOCKET = "/run/containerd/containerd.sock"
_CGROUPS = Path("/sys/fs/cgroup")
_SHARES = "32768"


def folder(number: int) -> Path:
    return STATE / f"node{number}"


def plan(number: int, bin_dir: Path) -> dict[str, Any]:
    """Write the node's settings and return the plan of its machine."""
    own = folder(number)
    (own / "net.d").mkdir(parents=True, exist_ok=True)
    (own / "net.d" / "10-pods.conflist").write_text(json.dumps(_pod_network(number)))
    (own / "resolv.conf").touch()
    (own / "containerd.toml").write_text(_containerd(own))
    (own / "kubelet.json").write_text(json.dumps(_kubelet(number)))
    _make_cgroups(number)
    mounts = {"kubelet": "/var/lib/kubelet", "cni": "/var/lib/cni", "logs": "/var/log/pods"}
    mounts["container-logs"] = "/var/log/containers"
    commands = {
        "containerd": ["containerd", "--config", str(own / "containerd.toml")],
        "kubelet": [
            str(bin_dir / "kubelet"),
            "--config", str(own / "kubelet.json"),
            "--kubeconfig", str(kubeconfig(f"system:node:node{number}")),
            "--hostname-override", f"node{number}",
            "--node-ip", wires.address(number),
            "--node-labels", f"topology.kubernetes.io/zone=zone{number}",
        ],
        "kube-proxy": [
            str(bin_dir / "kube-proxy"),
            "--kubeconfig", str(kubeconfig("system:kube-proxy")),
            "--hostname-override", f"node{number}",
            "--proxy-mode=nftables",
            "--cluster-cidr", POD_RANGE,
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
            "--oom-score-adj=0",
        ],
    }  # fmt: skip
    return {
        "host": f"node{number}",
        "shared": [str(VOLUMES)],
        "mounts": [[str(own / name), target] for name, target in mounts.items()],
        "programs": [
            {
                "name": name,
                "command": command,
                "after": f"unix:{SOCKET}" if name == "kubelet" else None,
                "log": str(own / f"{name}.log"),
            }
            for name, command in commands.items()
        ],
    }


def containerd_root(number: int) -> Path:
    return folder(number) / "containerd"


def _containerd(own: Path) -> str:
    return f"""\
version = 2
root = "{own / "containerd"}"
state = "/run/containerd"
oom_score = 0
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "rig.local/pause:1"
# Without CAP_SYS_RESOURCE no score may be set below one's own.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{_CNI_PROGRAMS}"
conf_dir = "{own / "net.d"}"
"""


def _pod_network(number: int) -> dict[str, Any]:
    ranges = [[{"subnet": wires.pods(number)}]]
    routes = [{"dst": "0.0.0.0/0"}]
    addresses = {"type": "host-local", "ranges": ranges, "routes": routes}
    # Routed, not bridged: neither br_netfilter nor hairpins are needed.
    pods = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [pods, ports]}


def _kubelet(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(KEYS / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_ADDRESS],
        "resolvConf": str(folder(number) / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/rig-node{number}",
        # Without this it does not start on machines with the first version of cgroups.
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 20,
        # Files in pods follow their Secrets when the kubelet looks after a pod anyway.
        "syncFrequency": "10s",
        "imageGCHighThresholdPercent": 100,
        # All nodes have this machine's disk: what one throws out gives the others no room, and the
        # image of every pod's sandbox would go with it.
        "evictionHard": {"memory.available": "1%"},
        "registryPullQPS": 0,
        "serializeImagePulls": False,
    }


def give_share(name: str, pid: int) -> None:
    """Put a process, and all that it starts, into a machine's share of the processors.

    Machines of their own would not wait for what else is run here; without this, each of their
    pods together would get no more than any other process.
    """
    group = _CGROUPS / "cpu" / f"rig-{name}"
    if not group.parent.is_dir():
        return
    group.mkdir(exist_ok=True)
    (group / "cpu.shares").write_text(_SHARES)
    (group / "cgroup.procs").write_text(str(pid))


def _make_cgroups(number: int) -> None:
    for controller in _CGROUPS.iterdir():
        if not controller.is_dir() or controller.is_symlink():
            continue
        own = controller / f"rig-node{number}"
        own.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (controller / name).exists():
                (own / name).write_text((controller / name).read_text())


def remove_cgroups() -> None:
    """Remove the groups of all nodes; what still holds processes stays."""
    for own in _CGROUPS.glob("*/rig-*"):
        for each in sorted(own.rglob("*"), reverse=True):
            if each.is_dir():
                _rmdir(each)
        _rmdir(own)


def _rmdir(group: Path) -> None:
    try:
        group.rmdir()
    except OSError:
        return
