"""Why a port cannot be bound, and who could do it."""

from __future__ import annotations

import errno
from typing import Final

PRIVILEGED_END: Final = 1024
"""The system's own default: `net.ipv4.ip_unprivileged_port_start` may say another."""
OTHER_PORT: Final = "set another port"


def cure_of(error: OSError, *, other: str = OTHER_PORT) -> str:
    """Return what to do about it; `other` says how a port is chosen there."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"ports below {PRIVILEGED_END} are for root and CAP_NET_BIND_SERVICE, or for all from "
            f"sysctl net.ipv4.ip_unprivileged_port_start on; or {other}"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return "bind an address of this machine"
    return f"stop what uses it, or {other}"
