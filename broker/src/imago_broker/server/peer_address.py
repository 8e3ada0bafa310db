"""How the address of a connection's peer is stored in records, and how it is shown."""

from __future__ import annotations

import ipaddress
import struct

_PORT = struct.Struct(">i")


def peer_bytes(host: str, port: int) -> bytes:
    """Return an address as records hold it: IPv4 in 4 bytes (mapped ones too), IPv6 in 16."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + _PORT.pack(port)


def peer_text(host: str) -> str:
    """Return an address as it is shown: mapped ones as the IPv4 that they are."""
    mapped = host.removeprefix("::ffff:")
    return mapped if "." in mapped else host
