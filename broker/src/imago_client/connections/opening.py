"""The connections of one client by address, each opened when it is first needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from imago_client.errors import ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Losable(Protocol):
    """A connection that says when it is gone."""

    lost: asyncio.Future[None]


C = TypeVar("C", bound=Losable)


class Connections(Generic[C]):
    """Opens each address by itself: one where nobody answers holds up no other."""

    def __init__(self, connect: Callable[[str], Coroutine[object, object, C]]) -> None:
        self._connect = connect
        self._by_address: dict[str, asyncio.Task[C]] = {}
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def ready(self, address: str) -> C | None:
        """Return the connection to an address if it is open."""
        task = self._by_address.get(address)
        return None if task is None or not task.done() or _is_gone(task) else task.result()

    async def get(self, address: str) -> C:
        """Return the connection to an address, opened if there is none, or none any more."""
        if self._closed:
            raise ClientClosedError
        task = self._by_address.get(address)
        if task is None or _is_gone(task):
            task = self._by_address[address] = asyncio.create_task(self._connect(address))
        try:
            # A caller that gives up must not take the connection from the others that wait for it.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise ClientClosedError from None  # it was the connection's end, not the caller's
            raise

    async def close(self) -> list[C]:
        """Open no more; return those that are open, for the caller to close."""
        self._closed = True
        connecting, self._by_address = list(self._by_address.values()), {}
        for task in connecting:
            task.cancel()
        outcomes = await asyncio.gather(*connecting, return_exceptions=True)
        return [one for one in outcomes if not isinstance(one, BaseException)]


def _is_gone(task: asyncio.Task[C]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().lost.done()
