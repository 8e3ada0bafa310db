"""Process 1 of one machine of the cluster: starts its programs and starts them again when they end.

`python machine.py PLAN`: the plan is JSON, {"host": name, "shared": [folder …], "mounts": [[folder,
target] …], "programs": [{"name", "command", "after": URL or null, "log"}]}. What is mounted below a
shared folder is seen by all machines, all else by none but its own. kill -9 of this process is a
power cut: everything of its process namespace dies with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_AGAIN_SECONDS = 1.0
_POLL_SECONDS = 0.1


def main(plan: dict[str, Any]) -> None:
    """Run the machine until it is told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    socket.sethostname(plan["host"])
    _keep_mounts_to_itself([os.path.realpath(folder) for folder in plan["shared"]])
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    for folder, target in plan["mounts"]:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", folder, target], check=True)
    waiting = list(plan["programs"])
    running: dict[int, dict[str, Any]] = {}
    again: list[tuple[float, dict[str, Any]]] = []
    while True:
        while waiting and _may_start(waiting[0]):
            program = waiting.pop(0)
            running[_start(program)] = program
        while again and again[0][0] < time.monotonic():
            program = again.pop(0)[1]
            running[_start(program)] = program
        later = time.monotonic() + _AGAIN_SECONDS
        again += [(later, running.pop(pid)) for pid in _ended() if pid in running]
        time.sleep(_POLL_SECONDS)


def _keep_mounts_to_itself(shared: list[str]) -> None:
    """Part the mounts of this machine from those of others, but for shared folders."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), line.split()[4])
        if not any(point == folder or point.startswith(f"{folder}/") for folder in shared):
            subprocess.run(["mount", "--make-private", point], check=True)


def _ended() -> list[int]:
    """Bury every child that has ended, orphans of containers too."""
    ended: list[int] = []
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended.append(pid)


def _may_start(program: dict[str, Any]) -> bool:
    url = program.get("after")
    if not url:
        return True
    if url.startswith("unix:"):
        return Path(url.removeprefix("unix:")).exists()
    try:
        with urllib.request.urlopen(url, timeout=2, context=ssl._create_unverified_context()):
            return True
    except (OSError, urllib.error.URLError):
        return False


def _start(program: dict[str, Any]) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, program["log"], flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    command = program["command"]
    return os.posix_spawnp(command[0], command, os.environ, file_actions=actions)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
