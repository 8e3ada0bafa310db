"""MetaQ's transactions on asyncio: local ones as a block, XA as a resource for its manager."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from imago_client.errors import ClientError
from imago_client.metaq.transacting import (
    TransactionSteps,
    Xid,
    read_prepared,
    read_recovered,
    read_step,
)
from imago_client.metaq.values import PutResult, read_put
from imago_wire.text.commands import TransactionType

if TYPE_CHECKING:
    from types import TracebackType

    from imago_client.metaq.connection import Asking
    from imago_wire.text.commands import Response


class LocalTransaction:
    """Messages to one broker that are seen together, or not at all.

        async with client.transaction() as transaction:
            await transaction.send("orders", b"…", partition=0)

    The end of the block commits; an exception in it rolls back. It belongs to the client's
    connection to the broker: where that is lost, so is the transaction.
    """

    def __init__(self, connections: Asking, server: str, timeout_s: int) -> None:
        self._connections, self._server, self._timeout_s = connections, server, timeout_s
        self._steps = TransactionSteps.local()

    async def send(
        self, topic: str, payload: bytes, *, partition: int, attribute: str | None = None
    ) -> PutResult:
        """Put one message; its offset is -1 until the commit. MetaqError: refused."""
        connections = self._connections
        async with connections.admission.room(len(payload)):
            answer = await connections.ask(
                self._server,
                self._steps.put(topic, payload, attribute, partition),
                timeout_s=connections.config.request_timeout_s,
            )
        return read_put(self._server, topic, answer)

    async def __aenter__(self) -> Self:
        await self._ask(TransactionType.BEGIN, self._timeout_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self._ask(TransactionType.COMMIT_ONE_PHASE)
            return
        with contextlib.suppress(ClientError):  # what went wrong in the block is what counts
            await self._ask(TransactionType.ROLLBACK)

    async def _ask(self, kind: TransactionType, timeout_s: int = 0) -> None:
        answer = await self._connections.ask(
            self._server,
            self._steps.step(kind, timeout_s),
            timeout_s=self._connections.config.request_timeout_s,
        )
        read_step(self._server, answer)


class XaResource:
    """One broker as a resource of a transaction manager. XaError: a step was refused.

    `qualifier` says whose transactions these are: `recover` tells those alone.
    """

    def __init__(self, connections: Asking, server: str, qualifier: str) -> None:
        self._connections, self._server, self._qualifier = connections, server, qualifier
        TransactionSteps.xa(None, qualifier)  # a bad one is refused now

    async def begin(self, xid: Xid, *, timeout_s: int = 0) -> None:
        """Begin a branch, or take part in it; a time ends it unless it is prepared by then."""
        await self._ask(xid, TransactionType.BEGIN, timeout_s)

    async def send(
        self,
        xid: Xid,
        topic: str,
        payload: bytes,
        *,
        partition: int,
        attribute: str | None = None,
    ) -> PutResult:
        """Put one message into a branch; its offset is -1 until the commit."""
        connections = self._connections
        async with connections.admission.room(len(payload)):
            answer = await connections.ask(
                self._server,
                TransactionSteps.xa(xid, self._qualifier).put(topic, payload, attribute, partition),
                timeout_s=connections.config.request_timeout_s,
            )
        return read_put(self._server, topic, answer)

    async def prepare(self, xid: Xid) -> bool:
        """Have the broker keep a branch until its end; False: it had no messages, and is over."""
        return read_prepared(self._server, await self._answer(xid, TransactionType.PREPARE))

    async def commit(self, xid: Xid, *, one_phase: bool = False) -> None:
        """Put the messages of a branch: one that is prepared, or any in one phase."""
        kind = TransactionType.COMMIT_ONE_PHASE if one_phase else TransactionType.COMMIT_TWO_PHASE
        await self._ask(xid, kind)

    async def roll_back(self, xid: Xid) -> None:
        """Drop the messages of a branch."""
        await self._ask(xid, TransactionType.ROLLBACK)

    async def recover(self) -> list[Xid]:
        """Return the branches that are prepared, or that a person decided about."""
        return read_recovered(self._server, await self._answer(None, TransactionType.RECOVER))

    async def forget(self, xid: Xid) -> None:
        """Have the broker forget what a person decided about a branch."""
        await self._ask(xid, TransactionType.FORGET)

    async def _ask(self, xid: Xid, kind: TransactionType, timeout_s: int = 0) -> None:
        read_step(self._server, await self._answer(xid, kind, timeout_s))

    async def _answer(self, xid: Xid | None, kind: TransactionType, timeout_s: int = 0) -> Response:
        return await self._connections.ask(
            self._server,
            TransactionSteps.xa(xid, self._qualifier).step(kind, timeout_s),
            timeout_s=self._connections.config.request_timeout_s,
        )
