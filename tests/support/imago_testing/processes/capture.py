"""What passes over ports on loopback, as the kernel shows it to whoever may look (root)."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

ALL: Final = 0x0003
"""Every protocol."""
PACKET, STATISTICS = 263, 6
"""SOL_PACKET, PACKET_STATISTICS."""
BUFFER_BYTES: Final = 64 << 20
FORCED: Final = 33
"""SO_RCVBUFFORCE: above the system's limit."""
ATTACH_FILTER: Final = 26
UDP, TCP = 17, 6
DISCARD: Final = ("127.0.0.1", 9)
"""Where the word goes that ends a capture."""


class Capture:
    """The payload of all TCP segments to and from some ports, one stream a direction."""

    def __init__(self, *ports: int) -> None:
        self._ports = frozenset(ports)
        self.data = bytearray()
        self.lost = 0
        """Packets that the kernel had no room for."""
        self._last_word = os.urandom(16)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, FORCED, BUFFER_BYTES)
        _attach(self._socket, _program(sorted(self._ports)))
        self._socket.bind(("lo", ALL))
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Whatever was sent before is in the socket before this is.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(self._last_word, DISCARD)
        self._thread.join()
        self.lost = struct.unpack("II", self._socket.getsockopt(PACKET, STATISTICS, 8))[1]
        self._socket.close()

    def _run(self) -> None:
        streams: dict[tuple[int, int], dict[int, bytes]] = {}
        while True:
            packet, address = self._socket.recvfrom(1 << 17)
            if packet[9] == UDP:
                if packet.endswith(self._last_word):
                    break
                continue
            if address[2] == socket.PACKET_OUTGOING:
                continue  # on loopback each passes twice
            tcp = packet[(packet[0] & 15) * 4 :]
            ports = struct.unpack_from(">HH", tcp)
            (sequence,) = struct.unpack_from(">I", tcp, 4)
            streams.setdefault(ports, {})[sequence] = tcp[(tcp[12] >> 4) * 4 :]
        for segments in streams.values():
            for sequence in sorted(segments):
                self.data += segments[sequence]


def _program(ports: list[int]) -> list[tuple[int, int, int, int]]:
    """Return a filter that takes IPv4 over UDP, and over TCP to and from the ports.

    The traffic of others would fill the buffer. Instructions are (code, jt, jf, k).
    """
    load_byte, load_half, header, equal, give = 0x30, 0x48, 0xB1, 0x15, 0x06
    tests = 2 * len(ports) + 2  # with the two loads

    def asked(offset: int, left: int) -> Iterable[tuple[int, int, int, int]]:
        yield (load_half, 0, 0, offset)
        for number, port in enumerate(ports):
            yield (equal, left - 1 - number, 0, port)

    return [
        (load_byte, 0, 0, 9),
        (equal, tests + 3, 0, UDP),
        (equal, 0, tests + 1, TCP),
        (header, 0, 0, 0),
        *asked(0, tests),
        *asked(2, len(ports) + 1),
        (give, 0, 0, 0),
        (give, 0, 0, 1 << 17),
    ]


def _attach(to: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    told = struct.pack("HL", len(program), ctypes.addressof(code))
    to.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, told)
