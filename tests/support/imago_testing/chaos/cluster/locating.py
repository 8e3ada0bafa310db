"""Finds the master as clients do: by a route of the name service, by MetaQ's tree in ZooKeeper."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from imago_testing.chaos.cluster.members import METAQ_TLS_PORT, NAMES_PORT
from imago_testing.chaos.connections import ConnectionLostError, RemotingConnection
from imago_testing.chaos.credentials import OPEN, Address
from imago_wire.remoting.bodies.route import MASTER_ID, TopicRouteData
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_testing.chaos.cluster.closing import Closed
    from imago_testing.chaos.cluster.members import Member
    from imago_testing.chaos.credentials import Credentials

_ASK_SECONDS_MAX = 2.0
_MASTER = "/meta/brokers/ids/0/master"


class UnknownError(OSError):
    """Nobody knows the master for now."""


class Route:
    """The master of a shard as the name service of any member tells it."""

    def __init__(
        self, members: Sequence[Member], topic: str, credentials: Credentials = OPEN
    ) -> None:
        self._topic, self._credentials = topic, credentials
        self._next = itertools.cycle(members)

    async def __call__(self) -> Address:
        host = next(self._next).address

        async def names() -> Address:
            return Address(host, NAMES_PORT, self._credentials)

        try:
            connection = await RemotingConnection.open(names)
        except TimeoutError as error:
            raise UnknownError(f"{host} is silent") from error
        try:
            async with asyncio.timeout(_ASK_SECONDS_MAX):
                answer = await connection.call(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": self._topic}
                )
        except (ConnectionLostError, TimeoutError) as error:
            raise UnknownError(f"{host} is silent") from error
        finally:
            await connection.close()
        if answer.code != ResponseCode.SUCCESS:
            raise UnknownError(str(answer))
        host, port = _master_of(answer.body)
        return Address(host, port, self._credentials)


def _master_of(body: bytes) -> tuple[str, int]:
    for broker in TopicRouteData.decode(body).broker_datas:
        if address := broker.broker_addrs.get(MASTER_ID):
            host, _, port = address.rpartition(":")
            return host, int(port)
    raise UnknownError("the route names no master")


class Tree:
    """The master of shard 0 as MetaQ's public tree tells it, or told while ZooKeeper was there."""

    def __init__(self, connect: str, closed: Closed | None = None) -> None:
        self._client = KazooClient(connect, timeout=10)
        self._closed = closed
        self._last: Address | None = None

    def start(self) -> None:
        self._client.start()

    def stop(self) -> None:
        self._client.stop()
        self._client.close()

    async def __call__(self) -> Address:
        await asyncio.to_thread(self._look)
        if self._last is None:
            raise UnknownError("the tree names no master")
        return self._last

    def _look(self) -> None:
        try:
            data, _ = self._client.get_async(_MASTER).get(timeout=_ASK_SECONDS_MAX)
        except (KazooException, KazooTimeoutError):
            return
        host, _, port = data.decode().removeprefix("meta://").rpartition(":")
        self._last = Address(host, int(port))
        if self._closed is not None:  # the tree has no place for the port with TLS
            self._last = Address(host, METAQ_TLS_PORT, self._closed.metaq)
