"""The cluster's network: one bridge, a network namespace for each node but the first."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rig.places import NETWORK, RigError

_NAMESPACES = Path("/run/netns")


def namespace(node: int) -> str:
    """Return the name of a node's network namespace."""
    return NETWORK if node == 1 else f"{NETWORK}-node{node}"


def path(node: int) -> Path:
    return _NAMESPACES / namespace(node)


def address(node: int) -> str:
    return f"10.99.0.{node}"


def pods(node: int) -> str:
    """Return the range of the addresses of a node's pods."""
    return f"10.244.{node}.0/24"


def make(nodes: int) -> None:
    """Make what is not there yet."""
    if not path(1).exists():
        _ip("netns", "add", NETWORK)
        _ip("-n", NETWORK, "link", "set", "lo", "up")
        _ip("-n", NETWORK, "link", "add", "br0", "type", "bridge")
        _ip("-n", NETWORK, "addr", "add", f"{address(1)}/24", "dev", "br0")
        _ip("-n", NETWORK, "link", "set", "br0", "up")
        # The way out ends here: nothing leaves the bridge.
        _ip("-n", NETWORK, "route", "add", "default", "dev", "br0")
        _forward(NETWORK)
    for node in range(2, nodes + 1):
        if not path(node).exists():
            _attach(node)
    for node in range(1, nodes + 1):
        for other in range(1, nodes + 1):
            if other != node:
                route = (pods(other), "via", address(other))
                _ip("-n", namespace(node), "route", "replace", *route)


def remove() -> None:
    """Remove every namespace of the cluster."""
    for each in sorted(_NAMESPACES.glob(f"{NETWORK}*"), reverse=True):
        if each.name == NETWORK or each.name.startswith(f"{NETWORK}-node"):
            subprocess.run(["ip", "netns", "del", each.name], check=False)


def connect(node: int, *, on: bool) -> None:
    """Pull a node's cable out of the bridge, or put it back. Node 1 is the bridge itself."""
    if node == 1:
        raise RigError("node 1 holds the control plane: it cannot be cut off")
    _ip("-n", NETWORK, "link", "set", f"n{node}", "up" if on else "down")


def _attach(node: int) -> None:
    own = namespace(node)
    _ip("netns", "add", own)
    _ip("-n", own, "link", "set", "lo", "up")
    _ip("-n", NETWORK, "link", "add", f"n{node}", "type", "veth", "peer", "name", "eth0",
        "netns", own)  # fmt: skip
    _ip("-n", NETWORK, "link", "set", f"n{node}", "master", "br0", "up")
    _ip("-n", own, "addr", "add", f"{address(node)}/24", "dev", "eth0")
    _ip("-n", own, "link", "set", "eth0", "up")
    _ip("-n", own, "route", "add", "default", "via", address(1))
    _forward(own)


def _forward(name: str) -> None:
    settings = ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0"]
    settings += ["net.ipv4.conf.default.rp_filter=0"]
    inside = ["nsenter", f"--net={_NAMESPACES / name}", "sysctl", "-q", "-w", *settings]
    subprocess.run(inside, check=True, capture_output=True)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"ip {' '.join(words)}: {done.stderr.strip()}")
