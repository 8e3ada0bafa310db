"""Runs operations on blocking sockets, in the caller's thread."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, TypeVar

from imago_client.blocking.rocketmq.connection import BlockingConnection
from imago_client.core.effects import Effect, Oneway, Operation, Pause, Request, Wait
from imago_client.errors import ClientClosedError, ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.config import ClientConfig
    from imago_wire.remoting.command import RemotingCommand

T = TypeVar("T")


class BlockingDriver:
    """Performs effects. Opens nothing before the first one, and all anew after a fork."""

    def __init__(
        self,
        config: ClientConfig,
        on_request: Callable[[str, RemotingCommand], RemotingCommand | None],
    ) -> None:
        self._config = config
        self._on_request = on_request
        self._connections: dict[str, BlockingConnection] = {}
        self._process_id = os.getpid()
        self._closed = False
        self.opened = 0
        """How many connections were opened so far: brokers reach a client over one it told them."""

    @property
    def is_open(self) -> bool:
        """Whether it holds connections that nobody has closed."""
        return bool(self._connections) and not self._closed

    def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end and return what it returns."""
        try:
            effect = next(operation)
            while True:
                try:
                    answer = self._perform(effect)
                except ClientError as error:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            operation.close()

    def send_ahead(self, request: Request) -> Ahead:
        """Write a request now and read its answer later, with `Ahead.receive`."""
        connection = self._connection(request.address)
        opaque = connection.send(request.code, request.header, request.body)
        return Ahead(connection, opaque, request.timeout_s)

    def listen(self, seconds: float) -> None:
        """Hear what brokers say unasked: wait for it so long, return once one has spoken.

        ClientError: a connection is lost; the next use opens it anew.
        """
        self._leave_parents_connections()
        open_now = [one for one in self._connections.values() if one.fileno() >= 0]
        if not open_now:
            time.sleep(seconds)
            return
        speaking = [one for one in open_now if one.holds_input]
        for connection in speaking or select.select(open_now, [], [], seconds)[0]:
            connection.hear()

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._drop_all()

    def _perform(self, effect: Effect) -> RemotingCommand | None:
        match effect:
            case Request(address, code, header, body, timeout_s):
                connection = self._connection(address)
                opaque = connection.send(code, header, body)
                return connection.receive(opaque, timeout_s=timeout_s)
            case Oneway(address, code, header, body):
                self._connection(address).send(code, header, body, oneway=True)
            case Pause(seconds):
                time.sleep(seconds)
            case Wait(gate):
                # One operation at a time: the caller that enters a lane is the first in it.
                assert gate.is_open, "a blocking client was used by two threads at once"
        return None

    def _connection(self, address: str) -> BlockingConnection:
        if self._closed:
            raise ClientClosedError
        self._leave_parents_connections()
        connection = self._connections.get(address)
        if connection is None or not connection.is_usable():
            if connection is not None:
                connection.close()
            connection = BlockingConnection(address, self._config, self._on_request)
            self._connections[address] = connection
            self.opened += 1
        return connection

    def _leave_parents_connections(self) -> None:
        if self._process_id != os.getpid():
            # The parent's sockets are shared with it: using them would mix both conversations.
            self._drop_all()
            self._process_id = os.getpid()

    def _drop_all(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


class Ahead:
    """A request on its way."""

    def __init__(self, connection: BlockingConnection, opaque: int, timeout_s: float) -> None:
        self._connection, self._opaque, self._timeout_s = connection, opaque, timeout_s

    def receive(self) -> RemotingCommand:
        """Return the answer, whatever its code."""
        return self._connection.receive(self._opaque, timeout_s=self._timeout_s)

    def forget(self) -> None:
        """Do not wait for the answer."""
        self._connection.forget(self._opaque)


class Inline:
    """A blocking driver for asyncio's faces, see `imago_client.blocking.faces`."""

    def __init__(self, driver: BlockingDriver) -> None:
        self._driver = driver

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end and return what it returns."""
        return self._driver.run(operation)
