"""How a server process tells its supervisor that it serves: one line of JSON into a pipe."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping


def announce(ready_fd: int, what: Mapping[str, Any]) -> None:
    """Write the line and close the pipe; -1: nobody asked. Nor does who has gone meanwhile."""
    if ready_fd < 0:
        return
    with suppress(BrokenPipeError), os.fdopen(ready_fd, "wb") as pipe:
        pipe.write(orjson.dumps(what) + b"\n")
