"""One Java process that runs the commands of a test: starting a JVM for each would cost seconds."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from imago_testing.java.toolchain import toolchain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imago_testing.java.modules import JavaModule

_HEAP_MB = 256
SMALL = ("-Xss512k", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags of a JVM that costs little."""
_READY_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 10
CALL_SECONDS = 120


def java_command(
    module: JavaModule,
    main_class: str,
    home: Path,
    *,
    heap_mb: int = _HEAP_MB,
    flags: Sequence[str] = SMALL,
) -> list[str]:
    """The command line of a JVM, a small one by default, whose home folder is `home`."""
    return [
        toolchain().java,
        f"-Xmx{heap_mb}m",
        *flags,
        "-XX:-UsePerfData",
        "-Dfile.encoding=UTF-8",
        "-Djava.net.preferIPv4Stack=true",
        f"-Duser.home={home}",
        "-cp",
        module.class_path(),
        main_class,
    ]


@dataclass
class DriverError(Exception):
    """The command failed inside the original client: its exception, by name and text."""

    command: str
    java_class: str
    text: str
    cause: str | None
    code: int | None
    """Response code of a RocketMQ broker, where the exception carries one."""

    def __str__(self) -> str:
        return f"{self.command}: {self.java_class}: {self.text} (cause: {self.cause})"


class JavaDriver:
    """Sends commands to a driver process and matches its answers. Ends with close()."""

    def __init__(self, name: str, command: Sequence[str], home: Path) -> None:
        """`command` runs the driver, here or elsewhere; `home` is its folder and has its log."""
        home.mkdir(parents=True, exist_ok=True)
        self.log_path = home / "driver.log"
        self._ids = itertools.count(1)
        self._pending: dict[int, tuple[str, Future[Any]]] = {}
        self._lock = threading.Lock()
        self._ready: Future[Any] = Future()
        with self.log_path.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=home,
            )
        self._reader = threading.Thread(target=self._read, name=f"{name} answers")
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> Self:
        self._ready.result(_READY_SECONDS_MAX)
        return self

    def send(self, command: str, **arguments: object) -> Future[Any]:
        """Start a command; commands run side by side."""
        request_id = next(self._ids)
        future: Future[Any] = Future()
        line = json.dumps({"id": request_id, "do": command, "with": arguments})
        with self._lock:
            self._pending[request_id] = (command, future)
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return future

    def call(self, command: str, **arguments: object) -> Any:
        """Run a command and return its result; DriverError when the client threw."""
        return self.send(command, **arguments).result(CALL_SECONDS)

    def kill(self) -> None:
        """End the process as a crash does."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process: politely by the end of its input, else by force."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_STOP_SECONDS_MAX)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "ready" in answer:
                self._ready.set_result(answer["ready"])
            else:
                self._settle(answer)
        self._fail_rest()

    def _settle(self, answer: dict[str, Any]) -> None:
        with self._lock:
            command, future = self._pending.pop(answer["id"])
        error = answer.get("error")
        if error is None:
            future.set_result(answer["result"])
            return
        future.set_exception(
            DriverError(command, error["class"], error["text"], error["cause"], error["code"])
        )

    def _fail_rest(self) -> None:
        """The process is gone: nobody may wait for it any longer."""
        with self._lock:
            waiting = list(self._pending.values())
            self._pending.clear()
        gone = RuntimeError(f"the driver process ended; its last words: {self._last_words()}")
        for _, future in waiting:
            future.set_exception(gone)
        if not self._ready.done():
            self._ready.set_exception(gone)

    def _last_words(self) -> str:
        return self.log_path.read_text(errors="replace")[-2000:]

    def told(self, lines_max: int) -> list[str]:
        """Return the last lines that the client logged, without the frames of its traces."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return [line for line in lines if not line.startswith("\tat ")][-lines_max:]
