"""What one connection of the remoting protocol may cost, and how its peer is named."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

_PORT = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingLimits:
    """What one connection may cost. Bytes and milliseconds."""

    frame_bytes_max: int = 16 << 20
    output_bytes_pause: int = 1 << 20
    """Above this nothing more is read from the peer until it has read its answers."""
    output_bytes_max: int = 32 << 20
    """A peer that lets more than this pile up unread is cut off."""
    idle_ms: int = 120_000
    input_stall_ms: int = 30_000
    """A frame that is not whole after this ends the connection."""
    output_stall_ms: int = 30_000
    """A peer that takes none of its answers for this long is cut off."""
    calls_max: int = 1024
    """Requests of ours to the client that wait for its answer."""


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
