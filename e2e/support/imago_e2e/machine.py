"""What only the suite's own nodes allow: power cuts, pulled cables, and processes that just die."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imago_e2e.kube import CALL_SECONDS, KubeError, run

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator, Mapping


def _rig(command: str, node: str) -> None:
    number = node.removeprefix("node")
    run([sys.executable, "-m", "rig", command, number], seconds_max=CALL_SECONDS)


@contextlib.contextmanager
def without_power(node: str) -> Iterator[None]:
    """Cut a node's power, and give it back at the end."""
    _rig("off", node)
    try:
        yield
    finally:
        _rig("on", node)


@contextlib.contextmanager
def without_cable(node: str) -> Iterator[None]:
    """Pull a node's cable, and put it back at the end."""
    _rig("cut", node)
    try:
        yield
    finally:
        _rig("mend", node)


def send(pod: Mapping[str, Any], words: str, number: signal.Signals) -> None:
    """Send a signal to the process of a pod whose command line has these words.

    Process 1 of a container can be neither killed nor stopped from inside of it.
    """
    own = str(pod["metadata"]["uid"])
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            groups = (folder / "cgroup").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has ended meanwhile
        if own in groups and words in command:
            os.kill(int(folder.name), number)
            found += 1
    if not found:
        raise KubeError(f"no process of {pod['metadata']['name']} is called {words!r}")
