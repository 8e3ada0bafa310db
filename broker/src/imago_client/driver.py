"""Runs operations on asyncio: one connection per address, opened when it is first needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from imago_client.connection import Connection
from imago_client.core.effects import Effect, Oneway, Operation, Pause, Request, Wait
from imago_client.errors import ClientClosedError, ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.config import ClientConfig
    from imago_client.core.lanes import Gate
    from imago_wire.remoting.command import RemotingCommand

T = TypeVar("T")


class Driver:
    """Performs effects; shared by all producers and consumers of a client."""

    def __init__(
        self,
        config: ClientConfig,
        on_request: Callable[[Connection, RemotingCommand], None],
    ) -> None:
        self._config = config
        self._on_request = on_request
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end and return what it returns."""
        try:
            effect = next(operation)
            while True:
                try:
                    answer = await self._perform(effect)
                except Exception as error:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            operation.close()

    async def close(self) -> None:
        """Close every connection and wait until they are gone."""
        self._closed = True
        connecting = list(self._connections.values())
        self._connections.clear()
        for task in connecting:
            task.cancel()
        for outcome in await asyncio.gather(*connecting, return_exceptions=True):
            if isinstance(outcome, Connection):
                outcome.close()
                await outcome.lost

    async def _perform(self, effect: Effect) -> RemotingCommand | None:
        match effect:
            case Request(address, code, header, body, timeout_s):
                connection = await self._connection(address)
                return await connection.ask(code, header, body, timeout_s=timeout_s)
            case Oneway(address, code, header, body):
                connection = await self._connection(address)
                await connection.tell(code, header, body)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Wait(gate):
                await _opened(gate)
        return None

    async def _connection(self, address: str) -> Connection:
        if self._closed:
            raise ClientClosedError
        task = self._connections.get(address)
        if task is None or _is_gone(task):
            task = asyncio.create_task(self._connect(address))
            self._connections[address] = task
        # A caller that gives up must not take the connection from the others that wait for it.
        return await asyncio.shield(task)

    async def _connect(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(address, self._config, self._on_request),
                    host.strip("[]"),
                    int(port),
                )
        except TimeoutError:
            waited = f"no connection within {self._config.connect_timeout_s:g} s"
            raise ConnectionLostError(address, waited) from None
        except OSError as error:
            raise ConnectionLostError(address, error.strerror or str(error)) from error
        return connection


async def _opened(gate: Gate) -> None:
    if gate.is_open:
        return
    opened = asyncio.Event()
    gate.on_open(opened.set)
    await opened.wait()


def _is_gone(task: asyncio.Task[Connection]) -> bool:
    if not task.done():
        return False
    if task.cancelled() or task.exception() is not None:
        return True
    return task.result().lost.done()
