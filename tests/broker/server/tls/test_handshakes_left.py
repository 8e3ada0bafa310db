"""Connections that leave before their handshake is done: nothing of them stays."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.server.tls import tls_entry
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.tls_hellos import client
from imago_testing.processes.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def settings(tmp_path: Path) -> tuple[str, ...]:
    pair = Authority(tmp_path / "authority").issue("server")
    return (f"tls.certificate_file={pair.certificate}", f"tls.key_file={pair.key}")


@pytest.mark.parametrize("said", ["", "part", "hello", "nonsense"])
async def test_connections_without_a_session_leave_nothing_to_collect(
    tmp_path: Path, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """The collector holds the loop up, and the longer the more there is: a storm made it 40 ms."""
    hello = client()[2].read()
    words = {"part": hello[:50], "hello": hello, "nonsense": bytes.fromhex("160301000405000000")}
    made: list[weakref.ref[tls_entry.TlsEntry]] = []
    make = tls_entry.TlsDoor.entry

    def noted(door: tls_entry.TlsDoor) -> tls_entry.TlsEntry:
        found = make(door)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(tls_entry.TlsDoor, "entry", noted)
    async with running_broker(tmp_path / "data", *settings) as broker:
        gc.disable()
        try:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", broker.rocketmq_port)
                writer.write(words.get(said, b""))
                if said in {"hello", "nonsense"}:
                    await reader.read(1)
                writer.close()
            await eventually(lambda: len(made) == 5)
            await eventually(lambda: broker.ports.rocketmq.connections == 0)
            await eventually(lambda: not any(each() for each in made))
        finally:
            gc.enable()


async def test_who_leaves_while_it_waits_has_no_turn(
    tmp_path: Path, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_entry, "HANDSHAKE_SECONDS_MAX", 600)
    async with running_broker(tmp_path / "data", *settings) as broker:
        turns, port = broker.ports.handshakes, broker.ports.rocketmq
        turns._clock = lambda: turns._counted_s  # no time passes: nobody gets a turn
        turns._budget_s = 0.0
        storm = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(20)]
        for _, writer in storm:
            writer.write(client()[2].read())
        await eventually(lambda: turns.waiting == 20)
        for _, writer in storm[:15]:
            writer.close()
        await eventually(lambda: (turns.waiting, port.connections) == (5, 5))
        for _, writer in storm[15:]:
            writer.close()
        await eventually(lambda: port.connections == 0)


@pytest.mark.parametrize("later", range(4))
async def test_a_connection_that_ends_as_its_turn_comes_is_left(
    tmp_path: Path, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """So many turns of the loop later."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    async with running_broker(tmp_path / "data", *settings) as broker:
        port, turns = broker.ports.rocketmq, broker.ports.handshakes

        async def ended(_address: str) -> None:
            end_in(later)

        def end_in(turns: int) -> None:
            if turns:
                asyncio.get_running_loop().call_soon(end_in, turns - 1)
                return
            for session in port.sessions:
                session.abort()

        monkeypatch.setattr(turns, "wait", ended)
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(client()[2].read())
        with contextlib.suppress(OSError):
            await reader.read()  # until it is closed
        writer.close()
        await eventually(lambda: port.connections == 0)
        for _ in range(20):
            await asyncio.sleep(0)
        gc.collect()  # what failed unseen is told
    assert not problems
