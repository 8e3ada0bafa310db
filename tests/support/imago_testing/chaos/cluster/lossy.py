"""A bad line between a machine and its switch: frames are lost, late, twice, or changed on the way.

A process in user space stands between the two ends and passes Ethernet frames on, as the kernel's
own means for this may be missing. Changed bits keep the checksum of TCP right, as those that memory
and network cards change do: only who carries a checksum of his own notices.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import random
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

_ALL_PROTOCOLS = 3
_OUTGOING = 4
"""Type of the frames that we have sent ourselves."""
_FRAME_BYTES_MAX = 1 << 16
_IDLE_SECONDS = 0.05
_LATE_MAX = 50_000
"""Frames on their way; more are lost."""
_IPV4, _TCP = 0x0800, 6
_ETHERNET_SIZE = 14
_SIOCETHTOOL = 0x8946
_OFFLOADS = (0x15, 0x17, 0x1F, 0x24, 0x2C)
"""Setting checksums of both directions, and the cutting and joining of frames (TSO, GSO, GRO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How bad a line is. Shares of all frames, in both directions."""

    lost: float = 0.0
    twice: float = 0.0
    late_s: float = 0.0
    jitter_s: float = 0.0
    """How much sooner or later than `late_s` a frame comes: they overtake each other."""
    changed: float = 0.0
    """Share of the frames with data of `port` in which one bit is another."""
    port: int = 0


class LossyLine:
    """Passes frames between two interfaces while the block lasts."""

    def __init__(self, one: str, other: str, line: Line, seed: int) -> None:
        self._line, self._rng = line, random.Random(seed)
        self._sockets = [_bound(one), _bound(other)]
        self._late: list[tuple[float, int, socket.socket, bytes]] = []
        self._serial = itertools.count()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lossy line")
        self.changed = self.lost = self.passed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for near, far in (self._sockets, self._sockets[::-1]):
                selector.register(near, selectors.EVENT_READ, far)
            while not self._over.is_set():
                for key, _ in selector.select(self._pause()):
                    assert isinstance(key.fileobj, socket.socket)
                    self._take(key.fileobj, key.data)
                self._let_go()

    def _pause(self) -> float:
        if not self._late:
            return _IDLE_SECONDS
        return max(0.0, min(_IDLE_SECONDS, self._late[0][0] - time.monotonic()))

    def _take(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while True:
                frame, source = near.recvfrom(_FRAME_BYTES_MAX)
                if source[2] != _OUTGOING:
                    self._treat(frame, far)

    def _treat(self, frame: bytes, far: socket.socket) -> None:
        line, rng = self._line, self._rng
        if rng.random() < line.lost or len(self._late) >= _LATE_MAX:
            self.lost += 1
            return
        if line.changed and rng.random() < line.changed:
            frame = self._change(frame)
        for _ in range(1 + (rng.random() < line.twice)):
            delay_s = line.late_s + rng.uniform(-1, 1) * line.jitter_s
            due = time.monotonic() + max(0.0, delay_s)
            heapq.heappush(self._late, (due, next(self._serial), far, frame))

    def _change(self, frame: bytes) -> bytes:
        data = tcp_data(frame, self._line.port)
        if data is None:
            return frame
        self.changed += 1
        return with_bit_changed(frame, self._rng.randrange(8 * data[0], 8 * data[1]))

    def _let_go(self) -> None:
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            _, _, far, frame = heapq.heappop(self._late)
            with contextlib.suppress(OSError):  # no room, or the line is being taken away
                far.send(frame)
                self.passed += 1


def _bound(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    made.bind((interface, _ALL_PROTOCOLS))
    made.setblocking(False)
    return made


def tcp_data(frame: bytes, port: int) -> tuple[int, int] | None:
    """Return where the data of a TCP segment from or to a port begins and ends; None: no data."""
    if len(frame) < _ETHERNET_SIZE + 20 or frame[12:14] != _IPV4.to_bytes(2, "big"):
        return None
    if frame[_ETHERNET_SIZE + 9] != _TCP:
        return None
    end = _ETHERNET_SIZE + int.from_bytes(frame[16:18], "big")
    start = _tcp_at(frame)
    if port not in struct.unpack_from(">HH", frame, start):
        return None
    data = start + (frame[start + 12] >> 4) * 4
    return (data, end) if data < end <= len(frame) else None


def _tcp_at(frame: bytes) -> int:
    return _ETHERNET_SIZE + (frame[_ETHERNET_SIZE] & 0x0F) * 4


def with_bit_changed(frame: bytes, bit: int) -> bytes:
    """Return a frame with one bit of its TCP data changed, and the checksum that this needs."""
    start, position = _tcp_at(frame), bit // 8
    changed = bytearray(frame)
    changed[position] ^= 1 << bit % 8
    at = position - (position - start) % 2
    before = int.from_bytes(frame[at : at + 2].ljust(2, b"\0"), "big")
    after = int.from_bytes(changed[at : at + 2].ljust(2, b"\0"), "big")
    (checksum,) = struct.unpack_from(">H", frame, start + 16)
    total = (~checksum & 0xFFFF) + (~before & 0xFFFF) + after
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into(">H", changed, start + 16, ~total & 0xFFFF)
    return bytes(changed)


def without_offloads(interface: str) -> None:
    """Have the kernel make whole frames with checksums: what comes through here is looked at."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for command in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
            with contextlib.suppress(OSError):  # fixed, or not known here
                fcntl.ioctl(asked, _SIOCETHTOOL, request.ljust(40, b"\0"))


def in_thread(work: Callable[[], None]) -> None:
    """Do something in a thread of its own, whose namespace is its own too."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
