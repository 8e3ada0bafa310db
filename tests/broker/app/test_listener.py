"""A listening port: socket options, limits, and a lack of file descriptors."""

from __future__ import annotations

import asyncio
import resource
import socket
from pathlib import Path

import pytest

from imago_broker.app.ports.open_files import DESCRIPTORS_RESERVED, connections_that_fit
from imago_broker.server.connection_places import Places
from imago_broker.server.listener import Listener, bound_socket
from imago_broker.server.session import Session


class Echo(Session):
    """Sends back what it gets."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def accepted_socket(listener: Listener) -> socket.socket:
    (session,) = listener.sessions
    sock = session.transport.get_extra_info("socket")
    assert sock is not None
    return sock  # type: ignore[no-any-return]  # the transport's type is open


def descriptor_max() -> int:
    """Return the highest open file descriptor of this process."""
    return max(int(path.name) for path in Path("/proc/self/fd").iterdir())


def connect_for_ever(port: int, clients: list[socket.socket]) -> None:
    """Open connections until the process has no descriptor left."""
    while True:
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        clients.append(client)


async def echoes(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello")
    try:
        return await reader.readexactly(5) == b"hello"
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    finally:
        writer.close()


async def test_accepted_connections_do_not_delay_small_answers() -> None:
    listener = Listener("127.0.0.1", 0, Echo)
    await listener.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"x")
        await reader.readexactly(1)
        sock = accepted_socket(listener)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await writer.wait_closed()
    finally:
        await listener.stop()


async def test_connections_of_one_address_are_limited() -> None:
    listener = Listener("127.0.0.1", 0, Echo, places=Places(per_address_max=1, known_kept=0))
    await listener.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"x")
        await reader.readexactly(1)
        assert not await echoes(listener.port)
        writer.close()
        await listener.until_connections(0)
        assert await echoes(listener.port)
        assert listener.accepted == 2
        assert listener.refused == 1
    finally:
        await listener.stop()


async def test_all_ports_have_one_number_of_places_and_some_have_more_kept() -> None:
    places = Places(1)
    first = Listener("127.0.0.1", 0, Echo, places=places)
    second = Listener("127.0.0.1", 0, Echo, places=places)
    kept = Listener("127.0.0.1", 0, Echo, places=places, places_kept=1)
    ports = (first, second, kept)
    for listener in ports:
        await listener.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
        writer.write(b"x")
        await reader.readexactly(1)
        assert not await echoes(first.port)
        assert not await echoes(second.port)
        assert await echoes(kept.port)
        assert (first.refused, second.refused, kept.refused) == (1, 1, 0)
        writer.close()
        for listener in ports:
            await listener.until_connections(0)
        assert places.taken == 0
        assert await echoes(second.port)
    finally:
        for listener in ports:
            await listener.stop()


def test_connections_leave_the_store_its_files() -> None:
    assert connections_that_fit(20_000, 100) == 20_000 - DESCRIPTORS_RESERVED - 512 - 100
    assert connections_that_fit(1024, 100) == 256, "few files: a quarter"
    assert connections_that_fit(20_000, 100_000) == 5000


async def test_listener_survives_a_lack_of_file_descriptors() -> None:
    listener = Listener("127.0.0.1", 0, Echo)
    await listener.start()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = descriptor_max()
    clients: list[socket.socket] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12, hard))
        with pytest.raises(OSError, match="Too many open files"):
            connect_for_ever(listener.port, clients)
        for _ in range(50):  # more connections wait than there are descriptors
            await asyncio.sleep(0)
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        await listener.until_connections(0)
        assert await echoes(listener.port)
    finally:
        await listener.stop()


async def test_busy_port_is_named_in_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: the port is in use"):
            bound_socket("127.0.0.1", port)


async def test_stopping_closes_connections_that_do_not_end_by_themselves() -> None:
    class Stubborn(Echo):
        def drain(self) -> None:
            """Stay open."""

    listener = Listener("127.0.0.1", 0, Stubborn)
    await listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"x")
    await reader.readexactly(1)
    await listener.stop(drain_seconds=0.01)
    assert listener.connections == 0
    assert await reader.read() == b""
    writer.close()


async def test_stopping_before_the_start_frees_the_port() -> None:
    listener = Listener("127.0.0.1", 0, Echo)
    listener.bind()
    port = listener.port
    await listener.stop()
    bound_socket("127.0.0.1", port).close()


async def test_every_session_is_swept_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("imago_broker.server.listener.SWEEP_SECONDS", 0.001)
    monkeypatch.setattr("imago_broker.server.listener.SWEEP_COUNT", 3)
    swept: set[Session] = set()
    all_swept = asyncio.Event()

    class Swept(Echo):
        def sweep(self, now_ms: int) -> None:
            assert now_ms > 0
            swept.add(self)
            if len(swept) == 10:
                all_swept.set()

    listener = Listener("127.0.0.1", 0, Swept)
    await listener.start()
    clients = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(10)]
    await all_swept.wait()
    assert swept == listener.sessions
    await listener.stop()
    for _, writer in clients:
        writer.close()


async def test_a_connection_accepted_while_the_port_is_closed_is_not_kept() -> None:
    loop = asyncio.get_running_loop()
    stops: list[asyncio.Task[None]] = []

    def stopped_meanwhile() -> Session:
        stops.append(loop.create_task(listener.stop()))  # runs before the session has its socket
        return Echo()

    listener = Listener("127.0.0.1", 0, stopped_meanwhile)
    await listener.start()
    assert not await asyncio.wait_for(echoes(listener.port), 50)
    await stops[0]
    assert listener.connections == listener.accepted == 0
