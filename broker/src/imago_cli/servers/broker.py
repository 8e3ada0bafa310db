"""`imago broker`: one broker process, as a pod runs it."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import Annotated

from imago_cli.line.declared import CommandGroup, Option
from imago_cli.servers.broker_process import serve


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("broker", broker)


def broker(
    config: Annotated[
        Path | None, Option(help="TOML file; IMAGO__SECTION__KEY overrides it.")
    ] = None,
    ready_fd: Annotated[int, Option(hidden=True)] = -1,
) -> None:
    """Run one broker process until SIGTERM.

    SIGHUP: read the configuration again and apply what may change while the broker runs.
    SIGTERM: leave the registry, accept no more requests, answer those in flight, write everything
    to disk, exit 0. Exit codes: 0 orderly stop, 1 unexpected error, 2 wrong configuration or a
    busy port, 3 data folder damaged or locked, 4 disk error, 5 fenced by another broker.
    """
    sys.exit(serve(config, ready_fd))
