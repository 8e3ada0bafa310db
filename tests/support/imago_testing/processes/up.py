"""A running `imago up`, for tests: started, waited for, stopped, and nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import psutil

from imago_testing.processes.segments import SMALL_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS_MAX = 60


class Up:
    """A running `imago up`."""

    def __init__(self, process: subprocess.Popen[str], data: Path) -> None:
        self.process = process
        self.data = data
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"ended before it served:\n{self.log()}"
        self.ready = json.loads(line)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)

    def children(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return found

    def log(self) -> str:
        return (self.data.parent / "up.err").read_text()


def command(data: Path, *options: str) -> list[str]:
    program = [sys.executable, "-m", "imago_cli", "up", "--json", "--data", str(data)]
    return [*program, *SMALL_SEGMENTS, *options]


@contextmanager
def up(data: Path, *options: str) -> Iterator[Up]:
    with ExitStack() as stack:
        stderr = stack.enter_context((data.parent / "up.err").open("ab"))
        process = stack.enter_context(
            subprocess.Popen(
                command(data, *options), stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        )
        running = Up(process, data)
        children: list[psutil.Process] = []
        try:
            running.wait_ready()
            children = running.children()
            yield running
        finally:
            if process.poll() is None:
                running.stop()
            assert not [child for child in children if child.is_running()], "children left behind"
