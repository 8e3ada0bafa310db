"""Starts processes, starts them again when they die, stops them in order.

Each child is a session of its own, so that a Ctrl-C at the terminal reaches the supervisor alone,
and dies with it (see `child`). A child that says so when it serves writes one line of JSON to the
pipe it was given; others are asked by a probe.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from imago_cli.exits import CommandError, Exit
from imago_cli.up import child

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

logger = logging.getLogger(__name__)

READY_SECONDS_MAX = 1800.0
"""A broker that reads a large log again after a crash takes its time; one that hangs for longer
is started anew."""
BACKOFF_SECONDS_FIRST = 0.1
BACKOFF_SECONDS_MAX = 5.0
HEALTHY_SECONDS = 2.0
"""A process that has served this long starts again at once; others wait twice as long each time."""
_PROBE_SECONDS = 0.05
_READY_LINE_BYTES_MAX = 65536
_ERROR_LINE = re.compile(r"^(?:error:|.* CRITICAL \S+) (.+)$", re.MULTILINE)
"""Of a command, and of a server's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What to run."""

    name: str
    command: Sequence[str]
    """`{ready_fd}` in it stands for the number of the pipe for the ready line."""
    log_path: Path
    pid_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = 15.0
    """How long after SIGTERM it is killed."""
    probe: Callable[[], bool] | None = None
    """Asked in a thread whether it serves; None: it writes a ready line."""
    damage_cure: str = ""
    """What else helps where its data is damaged."""


class ChildFailedError(CommandError):
    """A process ended before it served."""

    def __init__(self, spec: ProcessSpec, exit_code: int, reason: str) -> None:
        code = _own_code(exit_code, reason)
        cures = [spec.damage_cure] if spec.damage_cure and code is Exit.DATA else []
        cures.append(f"its log is {spec.log_path}")
        super().__init__(f"{spec.name}: {reason}", cure="; ".join(cures), code=code)


class Backoff:
    """How long to wait before the next start: twice as long after each life that was short."""

    def __init__(self) -> None:
        self._next = BACKOFF_SECONDS_FIRST

    def pause_after(self, served_seconds: float) -> float:
        """Return the seconds to wait after a life of this length."""
        if served_seconds >= HEALTHY_SECONDS:
            self._next = BACKOFF_SECONDS_FIRST
        pause = self._next
        self._next = min(2 * pause, BACKOFF_SECONDS_MAX)
        return pause


class SupervisedProcess:
    """One process that is kept running."""

    def __init__(self, spec: ProcessSpec, *, restart: bool) -> None:
        self.spec = spec
        self.ready: Mapping[str, Any] = {}
        """What the process said when it began to serve."""
        self._restart = restart
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Process id of the present life; 0 when there is none."""
        process = self._process
        return process.pid if process and process.returncode is None else 0

    async def start(self) -> None:
        """Start it and wait until it serves; ChildFailedError when it ends before."""
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await self._start()
        except TimeoutError as error:
            await self._end()
            raise CommandError(
                f"{self.spec.name} does not serve within {READY_SECONDS_MAX:g} s",
                cure=f"see {self.spec.log_path}",
            ) from error

    async def fail_when_dead(self) -> NoReturn:
        """Wait for the end of a life that has begun; ChildFailedError then."""
        raise self._failed(await self._wait())

    async def keep(self) -> None:
        """Return when it is stopped; until then start it again whenever it dies."""
        backoff = Backoff()
        loop = asyncio.get_running_loop()
        while True:
            since = loop.time()
            code = await self._wait()
            if self._is_stopping():
                return
            if not self._restart:
                logger.warning("process_died name=%s exit_code=%s", self.spec.name, code)
                self._forget()
                return
            pause = backoff.pause_after(loop.time() - since)
            logger.warning(
                "process_died name=%s exit_code=%s again_in_seconds=%g", self.spec.name, code, pause
            )
            await asyncio.sleep(pause)
            if not self._is_stopping():
                await self._start_again()
            if self._is_stopping():
                return

    async def stop(self) -> None:
        """SIGTERM, and after a while SIGKILL. Cancel `start` and `keep` before."""
        self._stopping = True
        await self._end()
        self._forget()

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(self.spec.stop_seconds):
                await self._wait()
        except TimeoutError:
            seconds = self.spec.stop_seconds
            logger.warning("process_killed name=%s after_seconds=%g", self.spec.name, seconds)
            process.kill()
            await self._wait()

    def kill(self) -> None:
        """SIGKILL, now."""
        self._stopping = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _is_stopping(self) -> bool:
        return self._stopping

    async def _start_again(self) -> None:
        try:
            await self.start()
        except (CommandError, OSError, ValueError) as error:
            logger.warning("process_not_ready name=%s: %s", self.spec.name, error)
        else:
            logger.info("process_restarted name=%s pid=%s", self.spec.name, self.pid)

    async def _start(self) -> None:
        read_end, write_end = os.pipe()
        try:
            await self._spawn(write_end)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        with os.fdopen(read_end, "rb", buffering=0) as pipe:
            if self.spec.probe is None:
                self.ready = await self._ready_line(pipe.fileno())
            else:
                await self._probe_until_ready(self.spec.probe)

    async def _spawn(self, ready_fd: int) -> None:
        spec = self.spec
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        command = [part.replace("{ready_fd}", str(ready_fd)) for part in spec.command]
        wrapper = [sys.executable, "-I", "-S", str(Path(child.__file__)), str(os.getpid())]
        with spec.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *wrapper,
                *command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(spec.environment),
                pass_fds=[ready_fd],
                start_new_session=True,
            )
        spec.pid_path.parent.mkdir(parents=True, exist_ok=True)
        spec.pid_path.write_text(f"{self._process.pid}\n")

    async def _ready_line(self, pipe: int) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        os.set_blocking(pipe, False)
        line = b""
        while not line.endswith(b"\n"):
            readable = loop.create_future()
            loop.add_reader(pipe, _set, readable)
            try:
                await readable
            finally:
                loop.remove_reader(pipe)
            chunk = os.read(pipe, _READY_LINE_BYTES_MAX)
            line += chunk
            if not chunk or len(line) > _READY_LINE_BYTES_MAX:
                raise self._failed(await self._wait())
        said: Mapping[str, Any] = json.loads(line)
        return said

    async def _probe_until_ready(self, probe: Callable[[], bool]) -> None:
        while not await asyncio.to_thread(probe):
            if self._process is None or self._process.returncode is not None:
                raise self._failed(await self._wait())
            await asyncio.sleep(_PROBE_SECONDS)

    async def _wait(self) -> int:
        process = self._process
        assert process is not None, "started before it is waited for"
        return await process.wait()

    def _failed(self, code: int) -> ChildFailedError:
        with self.spec.log_path.open("rb") as log:
            log.seek(self._log_start)
            text = log.read(1 << 20).decode(errors="replace")
        return ChildFailedError(self.spec, code, reason_in(text) or f"ended with code {code}")

    def _forget(self) -> None:
        self._process = None
        with suppress(FileNotFoundError):
            self.spec.pid_path.unlink()


async def while_all_live(
    children: Iterable[SupervisedProcess], work: Coroutine[Any, Any, None]
) -> None:
    """Do the work; ChildFailedError as soon as one of the children, which all serve, dies."""
    try:
        async with asyncio.TaskGroup() as group:
            deaths = [group.create_task(child.fail_when_dead()) for child in children]
            await work
            for death in deaths:
                death.cancel()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def reason_in(log: str) -> str:
    """Return what the process itself said was wrong: its last error line."""
    said = _ERROR_LINE.findall(log)
    return str(said[-1]) if said else ""


def _own_code(exit_code: int, reason: str) -> Exit:
    """A folder that another broker holds is a usage error: the user chose the folder."""
    if exit_code == Exit.DATA and "locked" in reason:
        return Exit.USAGE
    known = {Exit.USAGE, Exit.DATA, Exit.IO, Exit.FENCED}
    return Exit(exit_code) if exit_code in known else Exit.FAILED


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
