"""`imago broker`: one broker process, as a pod runs it."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003  typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer

from imago_cli.configuration import read_config
from imago_cli.ready import announce

if TYPE_CHECKING:
    from imago_broker.app import Broker


def attach(root: typer.Typer) -> None:
    """Add the command."""
    root.command("broker", help=broker.__doc__)(broker)


def broker(
    config: Annotated[
        Path | None, typer.Option(help="TOML file; IMAGO__SECTION__KEY overrides it.")
    ] = None,
    ready_fd: Annotated[int, typer.Option(hidden=True)] = -1,
) -> None:
    """Run one broker process until SIGTERM.

    SIGHUP: read the configuration again and take what may change while the broker runs.
    SIGTERM: take the broker out of the registry, accept no more, answer what is in flight, write
    everything to disk, exit 0. Exit codes: 0 in order, 1 unexpected, 2 wrong configuration or a
    busy port, 3 data folder damaged or locked, 4 disk error, 5 fenced by another broker.
    """
    settings = read_config(config)
    # Only now: a mistyped key is told before half a second of imports.
    from imago_broker.app import main
    from imago_broker.config import BrokerConfig, load

    def reread() -> BrokerConfig:
        text = "" if config is None else config.read_text(encoding="utf-8")
        return load(text, os.environ)

    def ready(running: Broker) -> None:
        announce(
            ready_fd,
            {
                "pid": os.getpid(),
                "host": running.host,
                "metaq": running.metaq_port,
                "rocketmq": running.rocketmq_port,
                "fast": running.fast_port,
                "namesrv": running.namesrv_port,
                "admin": running.admin_port,
                "replica": _replica(running),
            },
        )

    raise typer.Exit(main(settings, on_ready=ready, reread=reread))


def _replica(running: Broker) -> int:
    registered = running.coordinator.registered
    return 0 if registered is None else registered.replica
