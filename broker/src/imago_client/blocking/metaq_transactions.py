"""MetaQ's transactions on plain blocking sockets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from imago_client.errors import ClientError
from imago_client.metaq.transacting import (
    TransactionSteps,
    Xid,
    read_prepared,
    read_recovered,
    read_step,
)
from imago_client.metaq.values import MetaqConfig, PutResult, read_put
from imago_wire.text.commands import Request, Response, TransactionType

if TYPE_CHECKING:
    from types import TracebackType

Ask = Callable[[str, Callable[[int], Request], float], Response]
"""(address, what makes the command, how long to wait) → the answer."""


class LocalTransaction:
    """Messages to one broker that are seen together, or not at all, as a block of `with`."""

    def __init__(self, ask: Ask, server: str, timeout_s: int, config: MetaqConfig) -> None:
        self._asks, self._server, self._timeout_s = ask, server, timeout_s
        self._request_timeout_s = config.request_timeout_s
        self._steps = TransactionSteps.local()

    def send(
        self, topic: str, payload: bytes, *, partition: int, attribute: str | None = None
    ) -> PutResult:
        """Put one message; its offset is -1 until the commit. MetaqError: refused."""
        make = self._steps.put(topic, payload, attribute, partition)
        return read_put(
            self._server, topic, self._asks(self._server, make, self._request_timeout_s)
        )

    def __enter__(self) -> Self:
        self._ask(TransactionType.BEGIN, self._timeout_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._ask(TransactionType.COMMIT_ONE_PHASE)
            return
        with contextlib.suppress(ClientError):  # what went wrong in the block is what counts
            self._ask(TransactionType.ROLLBACK)

    def _ask(self, kind: TransactionType, timeout_s: int = 0) -> None:
        make = self._steps.step(kind, timeout_s)
        read_step(self._server, self._asks(self._server, make, self._request_timeout_s))


class XaResource:
    """One broker as a resource of a transaction manager. XaError: a step was refused."""

    def __init__(self, ask: Ask, server: str, qualifier: str, config: MetaqConfig) -> None:
        self._asks, self._server, self._qualifier = ask, server, qualifier
        self._request_timeout_s = config.request_timeout_s
        TransactionSteps.xa(None, qualifier)  # a bad one is refused now

    def begin(self, xid: Xid, *, timeout_s: int = 0) -> None:
        """Begin a branch, or take part in it; a time ends it unless it is prepared by then."""
        self._ask(xid, TransactionType.BEGIN, timeout_s)

    def send(
        self,
        xid: Xid,
        topic: str,
        payload: bytes,
        *,
        partition: int,
        attribute: str | None = None,
    ) -> PutResult:
        """Put one message into a branch; its offset is -1 until the commit."""
        steps = TransactionSteps.xa(xid, self._qualifier)
        make = steps.put(topic, payload, attribute, partition)
        return read_put(
            self._server, topic, self._asks(self._server, make, self._request_timeout_s)
        )

    def prepare(self, xid: Xid) -> bool:
        """Have the broker keep a branch until its end; False: it had no messages, and is over."""
        return read_prepared(self._server, self._answer(xid, TransactionType.PREPARE))

    def commit(self, xid: Xid, *, one_phase: bool = False) -> None:
        """Put the messages of a branch: one that is prepared, or any in one phase."""
        kind = TransactionType.COMMIT_ONE_PHASE if one_phase else TransactionType.COMMIT_TWO_PHASE
        self._ask(xid, kind)

    def roll_back(self, xid: Xid) -> None:
        """Drop the messages of a branch."""
        self._ask(xid, TransactionType.ROLLBACK)

    def recover(self) -> list[Xid]:
        """Return the branches that are prepared, or that a person decided about."""
        return read_recovered(self._server, self._answer(None, TransactionType.RECOVER))

    def forget(self, xid: Xid) -> None:
        """Have the broker forget what a person decided about a branch."""
        self._ask(xid, TransactionType.FORGET)

    def _ask(self, xid: Xid, kind: TransactionType, timeout_s: int = 0) -> None:
        read_step(self._server, self._answer(xid, kind, timeout_s))

    def _answer(self, xid: Xid | None, kind: TransactionType, timeout_s: int = 0) -> Response:
        make = TransactionSteps.xa(xid, self._qualifier).step(kind, timeout_s)
        return self._asks(self._server, make, self._request_timeout_s)
