"""Requests as the bytes that both clients write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.errors import UsageError
from imago_wire.remoting.command import request
from imago_wire.remoting.frame import encode_frame
from imago_wire.remoting.peer import Language

if TYPE_CHECKING:
    from imago_client.credentials import UserCredentials
    from imago_wire.remoting.fields import Header


def request_frame(
    code: int,
    header: Header | None,
    body: bytes,
    *,
    opaque: int,
    oneway: bool,
    credentials: UserCredentials | None = None,
) -> bytes:
    """Return a request as one frame, signed where there are credentials. UsageError: a name in it
    is no text."""
    command = request(code, header, body, opaque=opaque, oneway=oneway)
    command.language = Language.PYTHON
    try:
        if credentials is not None:
            command.ext = credentials.signed(command.ext, body)
        return encode_frame(command)
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError(f"request {code} cannot be written: {error}") from None
