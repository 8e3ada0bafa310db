"""Transactions of the Python MetaQ clients, on asyncio and blocking, against a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, UsageError
from imago_client.blocking import metaq as blocking
from imago_client.metaq import MetaqClient, MetaqError, Partition, XaError, Xid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

XID = Xid(b"gl\0bal", b"branch", 100)


@pytest.fixture
async def metaq(metaq_server: str, client: Client) -> AsyncIterator[MetaqClient]:
    await client.admin.create_topic("orders", queues=2)
    async with MetaqClient(metaq_server) as made:
        yield made


async def stored(metaq: MetaqClient, number: int = 0) -> list[tuple[int, bytes, str | None]]:
    fetched = await metaq.get(Partition("orders", metaq.config.servers[0], number), 0, group="g")
    return [(each.message_id, each.payload, each.attribute) for each in fetched.messages()]


async def test_block_that_ends_is_committed_and_one_that_fails_is_not(metaq: MetaqClient) -> None:
    async with metaq.transaction(timeout_s=30) as transaction:
        one = await transaction.send("orders", b"one", partition=0, attribute="red")
        two = await transaction.send("orders", b"two", partition=0)
        assert (one.offset, await stored(metaq)) == (-1, [])
    expected = [(one.message_id, b"one", "red"), (two.message_id, b"two", None)]
    assert await stored(metaq) == expected

    async def fail() -> None:
        async with metaq.transaction() as transaction:
            await transaction.send("orders", b"three", partition=0)
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert await stored(metaq) == expected


async def test_refused_put_is_an_error_and_the_block_may_go_on(metaq: MetaqClient) -> None:
    async with metaq.transaction() as transaction:
        with pytest.raises(MetaqError, match="wrong partition 9"):
            await transaction.send("orders", b"x", partition=9)
        await transaction.send("orders", b"kept", partition=1)
    assert [body for _, body, _ in await stored(metaq, 1)] == [b"kept"]


async def test_transaction_whose_time_is_over_cannot_be_committed(metaq: MetaqClient) -> None:
    async def late() -> None:
        async with metaq.transaction(timeout_s=1) as transaction:
            await transaction.send("orders", b"late", partition=0)
            await asyncio.sleep(1.2)
            while True:
                await transaction.send("orders", b"late", partition=0)

    with pytest.raises(MetaqError, match="has not been started"):
        await late()
    assert await stored(metaq) == []


async def test_xa_steps(metaq: MetaqClient) -> None:
    resource = metaq.xa_resource("python")
    await resource.begin(XID, timeout_s=30)
    await resource.send(XID, "orders", b"one", partition=0)
    with pytest.raises(XaError) as refused:
        await resource.commit(XID)
    assert refused.value.xa_code == -6
    assert await resource.prepare(XID)
    assert await resource.recover() == [XID]
    assert await metaq.xa_resource("other").recover() == []
    await resource.commit(XID)
    await resource.commit(XID)
    assert [body for _, body, _ in await stored(metaq)] == [b"one"]
    await resource.begin(XID)
    assert not await resource.prepare(XID)
    with pytest.raises(XaError) as refused:
        await resource.forget(XID)
    assert refused.value.xa_code == -4
    await resource.begin(XID)
    await resource.roll_back(XID)


@pytest.mark.parametrize("qualifier", ["12", "q", "a.b-c"])
async def test_any_qualifier_is_understood(metaq: MetaqClient, qualifier: str) -> None:
    resource = metaq.xa_resource(qualifier)
    await resource.begin(XID)
    await resource.send(XID, "orders", b"x", partition=0)
    assert await resource.prepare(XID)
    assert await resource.recover() == [XID]
    await resource.roll_back(XID)


async def test_blocking_client_has_the_same(metaq: MetaqClient, metaq_server: str) -> None:
    def work() -> None:
        with blocking.MetaqClient(metaq_server) as client:
            with client.transaction() as transaction:
                transaction.send("orders", b"one", partition=0)
                transaction.send("orders", b"two", partition=0)
            with pytest.raises(UsageError), client.transaction() as transaction:
                transaction.send("or ders", b"three", partition=0)
            resource = client.xa_resource("python")
            resource.begin(XID)
            resource.send(XID, "orders", b"four", partition=0)
            assert resource.prepare(XID)
            assert resource.recover() == [XID]
            resource.commit(XID)
            resource.begin(XID)
            resource.roll_back(XID)
            with pytest.raises(XaError):
                resource.forget(XID)

    await asyncio.to_thread(work)
    assert [body for _, body, _ in await stored(metaq)] == [b"one", b"two", b"four"]


def test_names_are_checked() -> None:
    for parts in ((b"", b"x"), (b"x" * 65, b"x"), (b"x", b"")):
        with pytest.raises(UsageError):
            Xid(*parts)


@pytest.mark.parametrize("qualifier", ["", "a b", "a:b"])
async def test_bad_qualifiers_are_refused(metaq: MetaqClient, qualifier: str) -> None:
    with pytest.raises(UsageError):
        metaq.xa_resource(qualifier)
