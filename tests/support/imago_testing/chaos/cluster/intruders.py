"""Who tries to write into a closed cluster without the right to it, whatever happens there."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_testing.chaos import payload
from imago_testing.chaos.cluster.members import METAQ_PORT
from imago_testing.chaos.connections import (
    ConnectionLostError,
    MetaqConnection,
    RemotingConnection,
)
from imago_testing.chaos.credentials import OPEN, Address
from imago_testing.chaos.history import Key
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from imago_testing.chaos.cluster.closing import Closed
    from imago_testing.chaos.connections import Where
    from imago_testing.chaos.credentials import Credentials
    from imago_testing.chaos.history import History, Queue

_PAUSE_SECONDS = 0.5
_FIRST_NUMBER = 10_000
"""Numbers that no producer has: what is stored all the same is found as nobody's."""
_REMOTING_OK, _METAQ_OK = 0, 200


class Intruder:
    """One way to try it."""

    def __init__(
        self,
        name: str,
        where: Where,
        kind: type[MetaqConnection | RemotingConnection],
        queue: Queue,
        history: History,
        *,
        number: int,
    ) -> None:
        self.name, self._where, self._kind = name, where, kind
        self._queue, self._history, self._number = queue, history, number
        self.refused = 0

    async def run(self) -> None:
        """Try again and again, over new connections."""
        for serial in itertools.count():
            try:
                await self._try(Key(self._number, serial))
            except (ConnectionLostError, ProtocolError, OSError):
                self.refused += 1  # or the broker is gone: that is as well
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _try(self, key: Key) -> None:
        body = payload.encode(key, random.Random(key.number), filler_bytes=None)
        connection = await self._kind.open(self._where)
        try:
            if isinstance(connection, RemotingConnection):
                served = (await connection.put(self._queue, [body])).code == _REMOTING_OK
            else:
                told = await connection.put(self._queue, body, None)
                served = getattr(told, "code", _METAQ_OK) == _METAQ_OK
        finally:
            await connection.close()
        if served:
            self._history.intruded.append(f"{self.name}: {key} was acknowledged")
        self.refused += not served


def intruders(
    closed: Closed, route: Where, tree: Where, queue: Queue, history: History
) -> list[Intruder]:
    """Return everybody who has no right to write, each with a way in."""

    def with_(where: Where, shown: Credentials, *, port: int | None = None) -> Where:
        async def changed() -> Address:
            host, own_port, _ = await where()
            return Address(host, port or own_port, shown)

        return changed

    wrong = replace(closed.rocketmq, secret="wrong-secret")
    bare = replace(closed.rocketmq, tls=None)
    remoting, metaq = RemotingConnection, MetaqConnection
    ways: list[tuple[str, Where, type[MetaqConnection | RemotingConnection]]] = [
        ("who signs nothing", with_(route, closed.unnamed), remoting),
        ("who signs with a wrong key", with_(route, wrong), remoting),
        ("who may only read", with_(route, closed.reads), remoting),
        ("who has no TLS", with_(route, bare), remoting),
        ("who shows MetaQ no certificate", with_(tree, closed.unnamed), metaq),
        ("who talks to MetaQ without TLS", with_(tree, OPEN, port=METAQ_PORT), metaq),
    ]
    return [
        Intruder(name, where, kind, queue, history, number=_FIRST_NUMBER + index)
        for index, (name, where, kind) in enumerate(ways)
    ]
