"""Closing a connection once, whoever comes to do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def close_once(transport: asyncio.Transport) -> None:
    """Close a transport unless it is closing already, or lost.

    asyncio's TLS forgets at a second `close` what it is of: then every other call ends in an
    AttributeError, `abort` too up to Python 3.11.3.
    """
    if not transport.is_closing():
        transport.close()
