"""The clients on plain blocking sockets: no event loop, no thread, nothing opened at import.

    with imago_client.blocking.Client("127.0.0.1:9876") as client:
        sent = client.producer().send(Message("orders", b"hello"))

A client belongs to one thread at a time. After a fork it opens its connections anew.
"""

from __future__ import annotations

from imago_client.blocking.client import Client

__all__ = ["Client"]
