"""Server processes that tests start: wait until they serve, always stop them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_testing.leaks import note_descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

WAIT_SECONDS_MAX = 60.0
"""How long a test waits for what must happen: machines that run tests may be busy."""
_POLL_SECONDS = 0.05
_STOP_SECONDS_MAX = 60.0


class ProcessFailedError(RuntimeError):
    """A server ended or did not serve in time; the text ends with its log."""


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    seconds_max: float = WAIT_SECONDS_MAX,
    poll: float = _POLL_SECONDS,
) -> None:
    """Return as soon as the condition holds; TimeoutError naming `what` when it never does."""
    end = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds_max:g} s: {what}")
        time.sleep(poll)


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


@dataclass(slots=True)
class ServerProcess:
    """A process with its log file."""

    name: str
    process: subprocess.Popen[bytes]
    log_path: Path

    @classmethod
    def start(
        cls, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
    ) -> ServerProcess:
        """Start it with `folder` as its working directory; output goes to <name>.log there."""
        folder.mkdir(parents=True, exist_ok=True)
        log_path = folder / f"{name}.log"
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(env or {})},
            )
        return cls(name, process, log_path)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for_port(self, port: int, *, seconds_max: float = WAIT_SECONDS_MAX) -> None:
        """Return once the port accepts; ProcessFailedError when the process ends before."""

        def serves() -> bool:
            if self.process.poll() is not None:
                raise ProcessFailedError(f"{self.name} ended early:\n{self.log_tail()}")
            return accepts(port)

        try:
            wait_until(serves, seconds_max=seconds_max, what=f"{self.name} serves port {port}")
        except TimeoutError as error:
            raise ProcessFailedError(f"{error}:\n{self.log_tail()}") from error

    def log_tail(self, size: int = 3000) -> str:
        return self.log_path.read_bytes()[-size:].decode(errors="replace")

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self, *, seconds_max: float = _STOP_SECONDS_MAX) -> int:
        """SIGTERM, then by force; return the exit code."""
        note_descendants(self.pid)  # what they were started with shows no secret
        self.process.terminate()
        try:
            return self.process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailedError(f"{self.name} ignored SIGTERM:\n{self.log_tail()}") from None


@contextlib.contextmanager
def running(server: ServerProcess) -> Iterator[ServerProcess]:
    """Give the server to the block and stop it afterwards, whatever happened."""
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
