"""`imago request`: send a message and print its consumer's reply."""

from __future__ import annotations

import base64
import os
from typing import Annotated

import typer

from imago_cli.connect import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, connected, no_topic
from imago_cli.output import flush, print_json, write_bytes

TIMEOUT_S_MAX = 3600.0


def attach(root: typer.Typer) -> None:
    """Add the command."""
    root.command("request", help=request.__doc__)(request)


def request(
    topic: str,
    message: str,
    timeout: Annotated[
        float, typer.Option(min=0.001, max=TIMEOUT_S_MAX, help="Seconds to wait for the reply.")
    ] = 3.0,
    tags: Annotated[str | None, typer.Option(help="Tag.")] = None,
    key: Annotated[str | None, typer.Option(help="Look-up key; chooses the queue.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send a request and print its reply. Exit code 1 if none came."""
    from imago_client import Message

    keys = (key,) if key else ()
    asking = Message(topic, os.fsencode(message), tags=tags, keys=keys, ordering_key=key)
    with connected(bootstrap) as client:
        if topic not in (known := client.admin.topics()):
            raise no_topic(topic, known)
        reply = client.requester().request(asking, timeout_s=timeout)
    if as_json:
        try:
            shown = {"body": reply.body.decode()}
        except UnicodeDecodeError:
            shown = {"bodyBase64": base64.b64encode(reply.body).decode()}
        print_json({**shown, "bornMs": reply.born_ms, "properties": dict(reply.properties)})
    else:
        write_bytes(reply.body + b"\n")
        flush()
