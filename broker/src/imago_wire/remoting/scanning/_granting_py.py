"""Whose a request is, and whether that user may: the plain Python reference.

The compiled twin is part of `_remoting_c`. It reads headers as the known clients sign and write
them, and leaves all others to these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.signing import ACCESS_KEY, SIGNATURE, is_signed

if TYPE_CHECKING:
    from imago_wire.remoting.scanning.granting import Grants, UserGrants


def signer(raw_header: bytes, body: bytes, grants: Grants) -> UserGrants | None:
    """Return what the user may whose request this is; None: it is refused, or nobody's.

    `raw_header` is the header with its header word. ProtocolError: it is unreadable.
    """
    command = decode_raw_header(raw_header, body)
    user = grants[command.ext.get(ACCESS_KEY, "")]
    if user is None or user.secret is None:
        return user
    if SIGNATURE not in command.ext or not is_signed(user.secret.decode(), command):
        return None
    return user
