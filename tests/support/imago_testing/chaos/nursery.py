"""Forks broker processes whose modules are loaded already, so that one starts in a moment.

`python -m imago_testing.chaos.nursery CONFIG LOG`: reads one word a line and answers with one
number a line. `start`: forks a broker, its process id. `poll`: its exit code, RUNS while it runs.
`wait`: its exit code, once it has ended. Ended by a signal: minus its number. The end of the input
ends the broker too, and so does the death of this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.app import main
from imago_broker.config import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_broker.config import BrokerConfig

RUNS = 1000
_PR_SET_PDEATHSIG = 1
_STOP_SECONDS_MAX = 20.0


class Nursery:
    """This side: starts the process that forks, and the one broker at a time."""

    def __init__(
        self,
        config: Path,
        log: Path,
        *,
        inside: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`inside` is a command line that runs another one somewhere else."""
        command = [sys.executable, "-m", "imago_testing.chaos.nursery", str(config), str(log)]
        self._process = subprocess.Popen(
            [*inside, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(env or {})},
        )

    def ask(self, word: str) -> int:
        """Send a word and return the number that answers it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and the broker with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_STOP_SECONDS_MAX)
        self._process.stdout.close()


def _fork(config: BrokerConfig, log: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number, descriptor in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
            os.dup2(number, descriptor)
        code = main(config)
    finally:
        os._exit(code)  # never back into the loop of the process that forked


def _ended(pid: int, options: int) -> int:
    found, status = os.waitpid(pid, options)
    return os.waitstatus_to_exitcode(status) if found else RUNS


def serve(config: BrokerConfig, log: Path) -> None:
    """Do what the input says, until it ends."""
    pid, code = 0, 0
    for line in sys.stdin:
        match line.strip():
            case "start":
                pid, code = _fork(config, log), RUNS
                answer = pid
            case word:
                if code == RUNS:
                    code = _ended(pid, os.WNOHANG if word == "poll" else 0)
                answer = code
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    if code == RUNS:
        os.kill(pid, signal.SIGKILL)
        _ended(pid, 0)


if __name__ == "__main__":
    serve(load(Path(sys.argv[1]).read_text(), {}), Path(sys.argv[2]))
