"""What passes over ports on loopback, as the kernel shows it to whoever may look (root)."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Self

ALL = 0x0003
"""Every protocol."""
PACKET, STATISTICS = 263, 6
"""SOL_PACKET, PACKET_STATISTICS."""
BUFFER_BYTES = 64 << 20
FORCED = 33
"""SO_RCVBUFFORCE: above the system's limit."""


class Capture:
    """The payload of all TCP segments to and from some ports, one stream a direction."""

    def __init__(self, *ports: int) -> None:
        self._ports = frozenset(ports)
        self.data = bytearray()
        self.lost = 0
        """Packets that the kernel had no room for."""
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, FORCED, BUFFER_BYTES)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.lost = struct.unpack("II", self._socket.getsockopt(PACKET, STATISTICS, 8))[1]
        self._socket.close()

    def _run(self) -> None:
        streams: dict[tuple[int, int], dict[int, bytes]] = {}
        while True:
            try:
                packet, address = self._socket.recvfrom(1 << 17)
            except TimeoutError:
                if self._ended.is_set():
                    break
                continue
            if address[2] == socket.PACKET_OUTGOING or packet[0] >> 4 != 4 or packet[9] != 6:
                continue  # on loopback each passes twice
            tcp = packet[(packet[0] & 15) * 4 :]
            ports = struct.unpack_from(">HH", tcp)
            if not self._ports.isdisjoint(ports):
                (sequence,) = struct.unpack_from(">I", tcp, 4)
                streams.setdefault(ports, {})[sequence] = tcp[(tcp[12] >> 4) * 4 :]
        for segments in streams.values():
            for sequence in sorted(segments):
                self.data += segments[sequence]
