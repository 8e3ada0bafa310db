"""A broker as a process: signals, the event loop, the exit code."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import uvloop

from imago_broker.app.broker import Broker
from imago_broker.app.clock import SystemClock
from imago_broker.app.ports.fence import FenceMark, held
from imago_broker.app.ports.open_files import raise_limit
from imago_broker.app.process_hooks import ProcessHooks
from imago_broker.app.starting import configure_logging, unless
from imago_broker.errors import ExitCode, FatalError
from imago_log.disk.vfs import OTHERS
from imago_wire import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.config import BrokerConfig

logger = logging.getLogger(__name__)

GC_THRESHOLDS = (50_000, 50, 100)
"""A turn makes thousands of short-lived tuples; the default of 700 would collect every turn."""

THREAD_TURN_SECONDS = 0.0005
"""How long a thread that computes may keep the interpreter from the event loop; Python's default
is ten times that, which every request would wait that comes while the store's worker computes."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's `mallopt`."""
HEAP_BLOCK_BYTES_MAX = 2 << 20
FREE_BYTES_KEPT = 16 << 20


def _untold(_: str) -> None:
    """Nobody asks why it ends."""


def main(
    config: BrokerConfig,
    *,
    on_ready: Callable[[Broker], None] | None = None,
    reread: Callable[[], BrokerConfig] | None = None,
    on_failure: Callable[[str], None] = _untold,
) -> int:
    """Run a broker on an event loop of its own; return the process's exit code."""
    os.umask(OTHERS)  # whatever this process writes
    raise_limit()
    keep_freed_memory()
    sys.setswitchinterval(THREAD_TURN_SECONDS)
    configure_logging(config.log.level, config.log.format)
    warn_of_plain_twins(compiled.missing)
    return uvloop.run(run(config, on_ready=on_ready, reread=reread, on_failure=on_failure))


def keep_freed_memory() -> None:
    """Let answers of megabytes be made in memory that former ones have used.

    By default the C library gives it back to the kernel after each, and memory that is touched for
    the first time costs more than what is written into it. Nothing changes with other C libraries.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX)
    mallopt(M_TRIM_THRESHOLD, FREE_BYTES_KEPT)


async def run(
    config: BrokerConfig,
    *,
    on_ready: Callable[[Broker], None] | None = None,
    reread: Callable[[], BrokerConfig] | None = None,
    on_failure: Callable[[str], None] = _untold,
) -> int:
    """Serve until SIGTERM or SIGINT; return the process's exit code.

    `on_ready` is called once everything serves. `reread` gives the configuration again at SIGHUP;
    without it the signal is ignored. `on_failure` is told why it ends if nobody has asked for it.
    """
    loop = asyncio.get_running_loop()
    stopped, ordered = asyncio.Event(), asyncio.Event()

    def end() -> None:
        ordered.set()
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    clock = SystemClock()
    try:
        while await held(config, clock, stopped):
            broker = Broker(config, process=ProcessHooks(reread=reread, stop=stopped.set))
            loop.add_signal_handler(signal.SIGHUP, _reload, broker)
            code = await _serve(broker, stopped, on_ready, on_failure)
            fenced = FenceMark(config.broker.data_dir, clock).said() is not None
            if code is not ExitCode.CLEAN or ordered.is_set() or not fenced:
                return int(code)
            stopped.clear()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)
    return int(ExitCode.CLEAN)


async def _serve(
    broker: Broker,
    stopped: asyncio.Event,
    on_ready: Callable[[Broker], None] | None,
    on_failure: Callable[[str], None],
) -> ExitCode:
    """Serve until somebody wants it to end, or it cannot go on."""
    try:
        if not await unless(stopped, broker.start()):
            return ExitCode.CLEAN
        settle_garbage_collector()
        if on_ready is not None:
            on_ready(broker)
        broker.failed.add_done_callback(lambda _: stopped.set())
        await stopped.wait()
        failure = broker.failed.result() if broker.failed.done() else None
        await broker.stop(clean=failure is None or failure.exit_code is not ExitCode.IO)
    except FatalError as error:
        logger.critical("%s", error, extra={"event": "broker_failed"})
        on_failure(str(error))
        return error.exit_code
    except BaseException:
        await broker.stop()
        raise
    if failure is None:
        return ExitCode.CLEAN
    on_failure(str(failure))
    return failure.exit_code


def warn_of_plain_twins(missing: Sequence[str]) -> None:
    """Say which hot modules are not compiled, or stale: the broker serves, but slowly."""
    if missing:
        names = ",".join(missing)
        logger.warning(
            "hot_modules_missing names=%s cure=run `make setup` with a C compiler", names
        )


def settle_garbage_collector() -> None:
    """Take what was built at the start out of every later collection, and collect rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _reload(broker: Broker) -> None:
    """Serve SIGHUP."""
    if broker.process.reread is not None and broker.serving:
        broker.source.reload_soon()
