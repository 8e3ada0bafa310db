"""What goes wrong while a MetaQ transaction's end is written: answered, and never left half."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from imago_broker.service.puts.put_status import PutStatus
from imago_testing.peers.metaq import metaq_peer

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.metaq import MetaqPeer

LOCAL = "TX:host-1-1:1"
XA = "XID:100:676c:6271:uq"
CAUSE = "no room for the topics of transactions"


@pytest.fixture
def writer(broker: Broker) -> Any:
    return broker.core.metaq_transactions.writer


def fail(*_: object) -> NoReturn:
    raise OSError(CAUSE)


async def do(peer: MetaqPeer, kind: str, key: str) -> bytes:
    async with asyncio.timeout(50):
        return await peer.ask(f"transaction {key} host-1-1 {kind} 9\r\n".encode())


async def fill(peer: MetaqPeer, key: str) -> None:
    assert await do(peer, "BEGIN", key) == b"result 200 0 9\r\n"
    for _ in range(2):
        assert (await peer.ask(f"put test 0 1 0 {key} 9\r\nx".encode())).startswith(b"result 200")


@pytest.mark.parametrize("key", [LOCAL, XA])
async def test_open_transaction_whose_commit_fails_is_rolled_back_and_told(
    broker: Broker, peer: MetaqPeer, writer: Any, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    await fill(peer, key)
    monkeypatch.setattr(writer, "commit", fail)
    assert CAUSE.encode() in await do(peer, "COMMIT_ONE_PHASE", key)
    monkeypatch.undo()
    transactions = broker.core.metaq_transactions
    assert (transactions.open.count, transactions.open.total_bytes) == (0, 0)
    assert b"has not been started" in await do(peer, "COMMIT_ONE_PHASE", key)
    await fill(peer, key)
    assert await do(peer, "COMMIT_ONE_PHASE", key) == b"result 200 0 9\r\n"


@pytest.mark.parametrize("kind", ["COMMIT_TWO_PHASE", "ROLLBACK"])
async def test_prepared_transaction_whose_end_fails_stays_prepared_and_can_end_later(
    broker: Broker, peer: MetaqPeer, writer: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await fill(peer, XA)
    assert await do(peer, "PREPARE", XA) == b"result 200 1 9\r\n0"
    monkeypatch.setattr(writer, "end", fail)
    refused = await do(peer, kind, XA)
    assert b"XAException:code=-3" in refused
    assert CAUSE.encode() in refused
    monkeypatch.undo()
    assert (await do(peer, "RECOVER", "null")).endswith(XA.encode())
    assert await do(peer, kind, XA) == b"result 200 0 9\r\n"
    assert broker.core.metaq_transactions.open.count == 0


async def test_who_waits_behind_an_end_that_fails_is_answered(
    broker: Broker, peer: MetaqPeer, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second commit waits for the first; what goes wrong then is its answer."""
    await fill(peer, XA)
    assert await do(peer, "PREPARE", XA) == b"result 200 1 9\r\n0"
    calls: list[Any] = []
    monkeypatch.setattr(writer, "end", lambda *args: calls.append(args))
    async with metaq_peer(broker.metaq_port) as other:
        first = asyncio.create_task(do(peer, "COMMIT_TWO_PHASE", XA))
        async with asyncio.timeout(50):
            while not calls:  # noqa: ASYNC110 - the broker's own loop
                await asyncio.sleep(0.01)
        second = asyncio.create_task(do(other, "COMMIT_TWO_PHASE", XA))
        async with asyncio.timeout(50):
            while not calls[0][1].waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        monkeypatch.setattr(broker.core.metaq_transactions, "_find", fail)
        *_, done = calls[0]
        done(PutStatus.DISK_FULL, ())
        assert b"The disk is full" in await first
        assert CAUSE.encode() in await second
