"""`imago request`: send a message and print its consumer's reply."""

from __future__ import annotations

import base64
import os
from typing import Annotated

from imago_cli.connect import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, connected, no_topic
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import flush, print_json, write_bytes

TIMEOUT_S_MAX = 3600.0


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("request", request)


def request(
    topic: str,
    message: str,
    timeout: Annotated[
        float, Option(least=0.001, most=TIMEOUT_S_MAX, help="Seconds to wait for the reply.")
    ] = 3.0,
    tags: Annotated[str | None, Option(help="Tag.")] = None,
    key: Annotated[str | None, Option(help="Look-up key; chooses the queue.")] = None,
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
