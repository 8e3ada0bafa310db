"""An event loop whose time and network are the test's: nothing happens but what it lets happen.

Time passes where nothing else is left to do. Connections are made between addresses of names;
their bytes lie in `Network.wires` until the test delivers some of them.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs call-backs as any loop does; waiting takes no time but lets it pass."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.network = Network(self)
        super().__init__(_Waits(self))

    def time(self) -> float:
        return self.now_s

    async def create_connection(  # type: ignore[override]  # what the tests use of it
        self, factory: Callable[[], Any], host: str, port: int, **_: object
    ) -> tuple[Any, Any]:
        return await self.network.connect(factory, host, port)


class _Waits(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout:
            self._loop.now_s += timeout
        return super().select(0)


class Wire:
    """One direction of a connection."""

    def __init__(self, source: VirtualTransport) -> None:
        self.source = source
        self.data = bytearray()
        self.eof = False
        self.target: VirtualTransport = source

    @property
    def ready(self) -> bool:
        """Whether the other end reads and there is something for it."""
        return bool(self.data or self.eof) and self.target.reads

    def deliver(self, count: int) -> None:
        """Give the other end so many bytes, or the end of the stream behind the last one."""
        if self.data:
            data = bytes(self.data[:count])
            del self.data[:count]
            self.target.protocol.data_received(data)
        else:
            self.eof = False
            self.target.ended()


class VirtualTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, protocol: Any, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.protocol = protocol
        self.wire = Wire(self)
        self._network = network
        self._paused = self._closing = False

    @property
    def reads(self) -> bool:
        return not (self._paused or self._closing)

    def ended(self) -> None:
        """Take the end of what the other side says."""
        if not self.protocol.eof_received():
            self.close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self.wire.data += data

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = self.wire.eof = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.wire.data.clear()
        self.close()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self.protocol)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever too much."""


class Network:
    """Who listens where, and every connection's bytes that are under way."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.listening: dict[tuple[str, int], Callable[[], Any]] = {}
        self.wires: list[Wire] = []
        self.opening: list[asyncio.Future[None]] = []
        self._loop = loop
        self._ports = 40_000

    async def connect(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[VirtualTransport, Any]:
        """Connect once the test lets it happen; ConnectionRefusedError where nobody listens."""
        opened: asyncio.Future[None] = self._loop.create_future()
        self.opening.append(opened)
        await opened
        accept = self.listening.get((host, port))
        if accept is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        self._ports += 1
        near = VirtualTransport(self, factory(), (host, port))
        far = VirtualTransport(self, accept(), ("127.0.0.1", self._ports))
        near.wire.target, far.wire.target = far, near
        self.wires += [near.wire, far.wire]
        far.protocol.connection_made(far)
        near.protocol.connection_made(near)
        return near, near.protocol

    @property
    def pending(self) -> list[Wire | asyncio.Future[None]]:
        """What can happen now."""
        self.wires = [
            each
            for each in self.wires
            if each.data or each.eof or not (each.source.is_closing() or each.target.is_closing())
        ]
        self.opening = [each for each in self.opening if not each.done()]
        return [*(wire for wire in self.wires if wire.ready), *self.opening]
