"""One broker as this process: configuration in, exit code out."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from imago_cli.exits import CommandError
from imago_cli.last_words import leave
from imago_cli.servers.ready import announce
from imago_cli.servers.server_config import read_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.config import BrokerConfig


def serve(config: Path | None, ready_fd: int) -> int:
    """Run a broker until it has to stop; return the process's exit code.

    `config` is a TOML file; UsageError says what is wrong with it. A line is written into the pipe
    `ready_fd` when everything serves; -1: nobody asked. Whatever ends it but an order to stop is
    left in the termination log.
    """
    try:
        return _serve(config, ready_fd)
    except Exception as error:
        leave(str(error) if isinstance(error, CommandError) else f"{type(error).__name__}: {error}")
        raise


def _serve(config: Path | None, ready_fd: int) -> int:
    settings = read_config(config)
    # Only now: a mistyped key is reported before half a second of imports.
    with _nothing_collected():
        from imago_broker.app import main
        from imago_broker.config.sources import load_with_ini
        from imago_broker.core.metaq.metaq_filters import check_config

    def reread() -> BrokerConfig:
        text = "" if config is None else config.read_text(encoding="utf-8")
        return load_with_ini(text, os.environ, check_config)

    def ready(running: Broker) -> None:
        announce(
            ready_fd,
            {
                "pid": os.getpid(),
                "host": running.host,
                "metaq": running.metaq_port,
                "rocketmq": running.rocketmq_port,
                "fast": running.ports.fast_port,
                "grpc": running.ports.grpc_port,
                "namesrv": running.ports.namesrv_port,
                "admin": running.ports.admin_port,
                "replica": _replica(running),
            },
        )

    return main(settings, on_ready=ready, reread=reread, on_failure=leave)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Import without garbage collections, which would find nothing and take a tenth of the start.

    Later ones pass over what is here at the end.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _replica(running: Broker) -> int:
    registered = running.coordinator.registered
    return 0 if registered is None else registered.replica
