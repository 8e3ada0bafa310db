"""First messages of TLS, made by OpenSSL and not sent: to be cut and changed as no client does."""

from __future__ import annotations

import contextlib
import ssl
from itertools import pairwise

RECORD_HEAD = 5
MESSAGE_HEAD = 4
ASKS_AGAIN = "secp521r1"
"""A curve for which no client offers a key at first."""
_CHANGE_CIPHER = b"\x14\x03\x03\x00\x01\x01"
_UNKNOWN = 0xFAFA
"""An extension that nobody knows: that for padding may be there already."""


def client() -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """Return one side of TLS, what it reads and what it writes, with its first message."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = context.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()
    return side, incoming, outgoing


def in_records(hello: bytes, *sizes: int) -> bytes:
    """Return a message in records of these sizes, and a last one with the rest."""
    message = hello[RECORD_HEAD:]
    ends = [sum(sizes[:n]) for n in range(len(sizes) + 1)] + [len(message)]
    parts = [message[begin:end] for begin, end in pairwise(ends)]
    return b"".join(hello[:3] + len(part).to_bytes(2) + part for part in parts)


def first_and_second(server: ssl.SSLContext) -> tuple[bytes, bytes]:
    """Return what a client says to a server that asks again: its first message, and its second."""
    side, incoming, outgoing = client()
    first = outgoing.read()
    asked, asks = ssl.MemoryBIO(), ssl.MemoryBIO()
    asked.write(first)
    with contextlib.suppress(ssl.SSLWantReadError):
        server.wrap_bio(asked, asks, server_side=True).do_handshake()
    incoming.write(asks.read())
    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()
    second = outgoing.read()
    assert second.startswith(_CHANGE_CIPHER)
    return first, second.removeprefix(_CHANGE_CIPHER)


def of_version(hello: bytes, version: int) -> bytes:
    """Return a message that says another version, which TLS 1.3 does not look at."""
    at = RECORD_HEAD + MESSAGE_HEAD
    return hello[:at] + version.to_bytes(2) + hello[at + 2 :]


def padded(hello: bytes, size: int) -> bytes:
    """Return a message with so many bytes more, in one record whose length may be too much."""
    body = hello[RECORD_HEAD + MESSAGE_HEAD :]
    at = 2 + 32  # version, random
    at += 1 + body[at]  # session
    at += 2 + int.from_bytes(body[at : at + 2])  # ciphers
    at += 1 + body[at]  # compressions
    extensions = body[at + 2 :] + _UNKNOWN.to_bytes(2) + size.to_bytes(2) + bytes(size)
    body = body[:at] + len(extensions).to_bytes(2) + extensions
    message = b"\x01" + len(body).to_bytes(3) + body
    return hello[:3] + min(len(message), 0xFFFF).to_bytes(2) + message
