"""The cluster as a whole: up, down, and what can be done to its nodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rig import build, control, images, keys, node, wires
from rig.keys import kubeconfig
from rig.places import HERE, KUBECONFIG, NETWORK, STATE, VOLUMES, RigError

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = 3
_READY_SECONDS_MAX = 120.0
_NEEDED = {
    "containerd": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "iptables": "iptables",
    "ip": "iproute2",
    "openssl": "openssl",
    "unshare": "util-linux",
    "mkfs.xfs": "xfsprogs",
}


def up(nodes: int = NODES) -> None:
    """Start what does not run; return when every node is ready and names are answered."""
    _check_tools()
    began = time.monotonic()
    bin_dir = build.programs()
    STATE.mkdir(parents=True, exist_ok=True)
    keys.make(nodes)
    images.write_own(bin_dir)
    images.give_to_new(range(1, nodes + 1))
    wires.make(nodes)
    _share(VOLUMES)
    start_machine("control", 1, control.plan(bin_dir))
    for number in range(1, nodes + 1):
        power_on(number)
    shutil.copyfile(kubeconfig("admin"), KUBECONFIG)
    _wait("the API server is ready", lambda: kubectl("get", "--raw", "/readyz") == "ok")
    _apply()
    _wait("every node is ready", lambda: ready_nodes() == nodes)
    bring()
    forget_replaced()
    _wait("names are answered", _names_are_answered)
    print(
        f"{nodes} nodes are ready after {time.monotonic() - began:.1f} s; KUBECONFIG={KUBECONFIG}"
    )


def down(*, clean: bool) -> None:
    """Stop everything; `clean` forgets it as well, but for what was built."""
    for file in sorted(STATE.glob("*.pid")):
        power_off(file.stem)
    wires.remove()
    node.remove_cgroups()
    if clean and STATE.exists():
        for mounted in (*VOLUMES.glob("*"), VOLUMES):
            subprocess.run(["umount", "-l", str(mounted)], capture_output=True, check=False)
        shutil.rmtree(STATE)


def power_on(number: int) -> None:
    """Start a node that does not run."""
    start_machine(f"node{number}", number, node.plan(number, build.programs()))


def power_off(name: str) -> None:
    """Cut the power of a machine: every process of it is gone at once."""
    file = STATE / f"{name}.pid"
    if (pid := _alive(file)) is not None:
        os.kill(pid, signal.SIGKILL)
        while Path("/proc", str(pid)).exists():
            time.sleep(0.02)
    file.unlink(missing_ok=True)


def process_of(name: str) -> int:
    """Return process 1 of a machine, as this machine numbers it."""
    pid = _alive(STATE / f"{name}.pid")
    if pid is None:
        raise RigError(f"{name} does not run")
    return pid


def load(tar: Path) -> None:
    """Bring an image archive to every node that runs."""
    for file in sorted(STATE.glob("node*.pid")):
        images.load(process_of(file.stem), tar.resolve())


def bring() -> None:
    """Bring the images that were built to every node that runs, where they are not there yet."""
    for file in sorted(STATE.glob("node*.pid")):
        if _alive(file) is not None:
            names = images.bring(process_of(file.stem), int(file.stem.removeprefix("node")))
            if names:
                print(f"{file.stem} has {', '.join(names)}", flush=True)


def forget_replaced() -> None:
    """Remove images from the nodes that run which newer ones have replaced there."""
    for file in sorted(STATE.glob("node*.pid")):
        if (pid := _alive(file)) is not None:
            images.forget_replaced(pid)


def start_machine(name: str, number: int, plan: dict[str, object]) -> None:
    """Start a machine on its plan, in name spaces of its own."""
    file = STATE / f"{name}.pid"
    if _alive(file) is not None:
        return
    path = STATE / f"{name}.json"
    path.write_text(json.dumps(plan, indent=1))
    # `ip netns exec` would remount /sys and hide the control groups.
    command = ["nsenter", f"--net={wires.path(number)}", "unshare", "--mount"]
    command += ["--propagation", "unchanged", "--uts", "--pid", "--fork", "--kill-child"]
    command += ["--mount-proc", sys.executable, str(HERE / "rig" / "machine.py"), str(path)]
    with (STATE / f"{name}.log").open("ab") as log:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    pid = _child_of(started)
    node.give_share(name, pid)
    file.write_text(str(pid))


def kubectl(*words: str, text: str | None = None) -> str:
    """Run kubectl inside the cluster's network; "" when it fails."""
    command = [str(build.programs() / "kubectl"), "--kubeconfig", str(KUBECONFIG), *words]
    inside = ["nsenter", f"--net=/run/netns/{NETWORK}", *command]
    done = subprocess.run(inside, input=text, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def ready_nodes() -> int:
    """How many nodes are ready."""
    conditions = '{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
    return kubectl("get", "nodes", "-o", f"jsonpath={conditions}").split().count("True")


def _share(folder: Path) -> None:
    """Let every machine that is started from now on see what another mounts below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mountpoint", "--quiet", str(folder)], check=False).returncode:
        subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
        subprocess.run(["mount", "--make-shared", str(folder)], check=True)


def _apply() -> None:
    for path in sorted((HERE / "manifests").glob("*.yaml")):

        def applied(path: Path = path) -> bool:
            return bool(kubectl("apply", "-f", str(path)))

        _wait(f"{path.name} is applied", applied)


def _names_are_answered() -> bool:
    # A restarted cluster shows pods as ready until kubelets report: only an answer counts.
    deployed = "jsonpath={.status.readyReplicas}"
    return kubectl("-n", "kube-system", "get", "deployment", "coredns", "-o", deployed) == "1"


def _alive(file: Path) -> int | None:
    if not file.exists():
        return None
    pid = int(file.read_text())
    command = Path("/proc", str(pid), "cmdline")
    return pid if command.exists() and b"machine.py" in command.read_bytes() else None


def _child_of(parent: subprocess.Popen[bytes]) -> int:
    """Return the only child of a process: unshare's, which is process 1 inside."""
    children = Path("/proc", str(parent.pid), "task", str(parent.pid), "children")
    end = time.monotonic() + _READY_SECONDS_MAX
    while time.monotonic() < end:
        found = children.read_text().split() if children.exists() else []
        if found:
            return int(found[0])
        time.sleep(0.02)
    raise RigError("the machine does not start: are name spaces allowed here?")


def _wait(what: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _READY_SECONDS_MAX
    while not condition():
        if time.monotonic() > end:
            raise RigError(f"not within {_READY_SECONDS_MAX:.0f} s: {what}; logs are in {STATE}")
        time.sleep(0.2)


def _check_tools() -> None:
    if os.geteuid() != 0:
        raise RigError("the cluster needs root: it makes network and process name spaces")
    missing = {package for tool, package in _NEEDED.items() if shutil.which(tool) is None}
    if not Path("/usr/lib/cni/ptp").exists():
        missing.add("containernetworking-plugins")
    if missing:
        raise RigError(f"missing here: apt-get install {' '.join(sorted(missing))}")
