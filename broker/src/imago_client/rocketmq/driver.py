"""Runs operations on asyncio: one connection per address, opened when it is first needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from imago_client.connections.admission import Admission
from imago_client.connections.opening import Connections
from imago_client.connections.reaching import not_had
from imago_client.core.effects import Effect, Oneway, Operation, Pause, Request, Wait
from imago_client.errors import UsageError
from imago_client.rocketmq.connection import Connection
from imago_client.rocketmq.submissions import Submissions
from imago_client.tls import Trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.config import ClientConfig
    from imago_client.core.gate import Gate
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
        self._connections = Connections(self._connect)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._trust = Trust(config)
        self.opened = 0
        """How many connections were opened so far: brokers reach a client over one it told them."""
        self.admission = Admission(count_max=config.sends_max, bytes_max=config.sends_bytes_max)
        self.submissions = Submissions(
            Admission(count_max=config.sends_max, bytes_max=config.sends_bytes_max)
        )

    @property
    def is_open(self) -> bool:
        """Whether it has opened connections that nobody has closed."""
        return self.opened > 0 and not self._connections.is_closed

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
        """Close every connection and wait until they are gone, also where nobody reads any more."""
        await asyncio.gather(*(self._end(one) for one in await self._connections.close()))

    async def _end(self, connection: Connection) -> None:
        connection.close()
        await asyncio.wait([connection.lost], timeout=self._config.request_timeout_s)
        connection.abort()
        await connection.lost

    async def _perform(self, effect: Effect) -> RemotingCommand | None:
        if isinstance(effect, Request):  # quicker than a match
            connection = await self._connection(effect.address)
            timeout_s = effect.timeout_s
            return await connection.ask(
                effect.code, effect.header, effect.body, timeout_s=timeout_s
            )
        match effect:
            case Oneway(address, code, header, body):
                connection = await self._connection(address)
                await connection.tell(code, header, body)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Wait(gate):
                await _opened(gate)
        return None

    async def _connection(self, address: str) -> Connection:
        self.check_loop()
        return self._connections.ready(address) or await self._connections.get(address)

    def check_loop(self) -> None:
        """UsageError: this client belongs to another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UsageError(
                "a client belongs to the event loop of its first call: make one for each loop"
                " (every asyncio.run has its own), or use imago_client.blocking"
            )

    async def _connect(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(address, self._config, self._on_request),
                    host.strip("[]"),
                    int(port),
                    ssl=self._trust.context(),
                )
        except (OSError, UnicodeError) as error:
            waited_s = self._config.connect_timeout_s
            raise not_had(address, error, self._config, timeout_s=waited_s) from error
        self.opened += 1
        return connection


async def _opened(gate: Gate) -> None:
    if gate.is_open:
        return
    opened = asyncio.Event()
    gate.on_open(opened.set)
    await opened.wait()
