"""How commands reach a cluster: the options for it, and errors in the command's own words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from imago_cli.exits import CommandError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_client.blocking import Client

DEFAULT_BOOTSTRAP = "127.0.0.1:9876"
DEFAULT_METAQ = "127.0.0.1:8123"

Bootstrap = Annotated[
    str,
    typer.Option(envvar="IMAGO_BOOTSTRAP", help="Name-service addresses, HOST:PORT[,HOST:PORT…]."),
]
MetaqServers = Annotated[
    str,
    typer.Option(
        "--metaq",
        envvar="IMAGO_METAQ",
        help="With --protocol metaq: the brokers' addresses, HOST:PORT[,…], one a shard.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn a client's errors into a command's."""
    from imago_client import errors
    from imago_wire.errors import ProtocolError

    try:
        yield
    except errors.UsageError as error:
        raise UsageError(str(error)) from error
    except (errors.ClientError, ProtocolError) as error:
        raise CommandError(str(error)) from error


@contextmanager
def connected(bootstrap: str) -> Iterator[Client]:
    """Give a client of the cluster."""
    from imago_client.blocking import Client

    with client_errors(), Client(bootstrap) as client:
        yield client


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost; UsageError where nobody can answer."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is here to ask", cure="add --yes")
    typer.confirm(question, abort=True)
