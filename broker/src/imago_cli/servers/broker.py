"""`imago broker`: one broker process, as a pod runs it."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  typer reads the annotation
from typing import Annotated

import typer

from imago_cli.servers.broker_process import serve


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

    SIGHUP: read the configuration again and apply what may change while the broker runs.
    SIGTERM: leave the registry, accept no more requests, answer those in flight, write everything
    to disk, exit 0. Exit codes: 0 orderly stop, 1 unexpected error, 2 wrong configuration or a
    busy port, 3 data folder damaged or locked, 4 disk error, 5 fenced by another broker.
    """
    raise typer.Exit(serve(config, ready_fd))
