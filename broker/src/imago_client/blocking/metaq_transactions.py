"""MetaQ's transactions on plain blocking sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from imago_client.blocking.faces import blocking, completed
from imago_client.metaq.transactions import LocalTransaction as AsyncLocalTransaction
from imago_client.metaq.transactions import XaResource as AsyncXaResource

if TYPE_CHECKING:
    from types import TracebackType


class LocalTransaction:
    """Messages to one broker that are seen together, or not at all, as a block of `with`."""

    def __init__(self, face: AsyncLocalTransaction) -> None:
        self._face = face

    send = blocking(AsyncLocalTransaction.send)

    def __enter__(self) -> Self:
        completed(self._face.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        completed(self._face.__aexit__(kind, error, trace))


class XaResource:
    """One broker as a resource of a transaction manager. XaError: a step was refused."""

    def __init__(self, face: AsyncXaResource) -> None:
        self._face = face

    begin = blocking(AsyncXaResource.begin)
    send = blocking(AsyncXaResource.send)
    prepare = blocking(AsyncXaResource.prepare)
    commit = blocking(AsyncXaResource.commit)
    roll_back = blocking(AsyncXaResource.roll_back)
    recover = blocking(AsyncXaResource.recover)
    forget = blocking(AsyncXaResource.forget)
