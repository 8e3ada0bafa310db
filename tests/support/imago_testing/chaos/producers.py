"""Producers that keep one or several messages in flight and note what became of each."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from imago_testing.chaos import payload
from imago_testing.chaos.connections import (
    ConnectionLostError,
    MetaqConnection,
    RemotingConnection,
    tags,
)
from imago_testing.chaos.history import Key, Place, Protocol
from imago_wire.remoting.texts.message_ids import parse_offset_message_id
from imago_wire.text.commands import Result, Value

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from imago_testing.chaos.connections import Where
    from imago_testing.chaos.history import History, Queue
    from imago_wire.remoting.command import RemotingCommand

BATCH_MAX = 6
LIGHT = "%LMQ%chaos-"
"""What the names of light queues begin with; the number of a producer follows."""
LIGHT_OF_ALL = LIGHT + "all"
_RETRY_SECONDS = 0.02
PATIENCE_SECONDS = 20.0


class Producer(ABC):
    """One connection after another; a number is used once, whatever became of it."""

    def __init__(
        self,
        number: int,
        where: Where,
        queues: Sequence[Queue],
        history: History,
        on_ack: Callable[[int], None],
        *,
        rng: random.Random,
        in_flight: int,
        light: bool = False,
        body_bytes: int | None = None,
        pause: Callable[[], float] = lambda: 0.0,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`on_ack` is told the size of each body that is acknowledged.

        `light`: messages of RocketMQ that are sent alone name light queues, now and then.
        `body_bytes`: their mean; most are of some hundred bytes without it. `pause`: seconds until
        the next send. `patience`: how many seconds a broker may be silent while answers are due.
        """
        self._number = number
        self._where = where
        self._queues = queues
        self._history = history
        self._on_ack = on_ack
        self._rng = rng
        self._body_bytes = body_bytes
        self._pause = pause
        self._patience = patience
        self._next = 0
        self._in_flight = in_flight
        self._light = light
        self._stopping = False
        self.refused = 0
        """Answers that were an error of the protocol."""

    def stop(self) -> None:
        """Send nothing more; run() returns when all answers are here."""
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            with contextlib.suppress(ConnectionLostError, OSError):
                await self._session()
            if not self._stopping:
                await asyncio.sleep(_RETRY_SECONDS)

    @abstractmethod
    async def _session(self) -> None:
        """Open a connection and send until it is lost, a send is refused or run() shall end."""

    async def _send(self, send_some: Callable[[], asyncio.Future[bool]]) -> None:
        """Keep some requests under way. Raises when the connection is lost."""
        flying: set[asyncio.Future[bool]] = set()
        while not self._stopping:
            while len(flying) < self._in_flight:
                flying.add(send_some())
            done, flying = await asyncio.wait(
                flying, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED
            )
            if not done or not all(each.result() for each in done):
                break
            if pause := self._pause():
                await asyncio.sleep(pause)
        if flying:
            await asyncio.wait(flying, timeout=self._patience)

    def _message(self, attribute: str | None) -> tuple[Key, bytes]:
        key = Key(self._number, self._next)
        self._next += 1
        filler = None if self._body_bytes is None else self._rng.randrange(2 * self._body_bytes)
        body = payload.encode(key, self._rng, filler_bytes=filler)
        self._history.attempted[key] = payload.content(attribute, body)
        return key, body

    def _acked(self, key: Key, place: Place, size: int) -> None:
        self._history.acked[key] = place
        self._on_ack(size)


class MetaqProducer(Producer):
    async def _session(self) -> None:
        connection = await MetaqConnection.open(self._where)
        try:
            await self._send(lambda: asyncio.ensure_future(self._put(connection)))
        finally:
            await connection.close()

    async def _put(self, connection: MetaqConnection) -> bool:
        """Return whether to go on: False when the connection is lost or the send refused."""
        queue = self._rng.choice(self._queues)
        attribute = self._rng.choice([None, "colour", ""])
        key, body = self._message(attribute)
        try:
            answer = await connection.put(queue, body, attribute)
        except ConnectionLostError:
            return False
        return self._note(key, len(body), queue, answer)

    def _note(self, key: Key, size: int, queue: Queue, answer: Result | Value) -> bool:
        assert isinstance(answer, Result)
        if answer.code != 200:
            self.refused += 1
            return False
        message_id, partition, position = (int(word) for word in answer.text.split(" "))
        assert partition == queue.number
        self._acked(key, Place(Protocol.METAQ, queue, position, message_id), size)
        return True


class RocketmqProducer(Producer):
    async def _session(self) -> None:
        connection = await RemotingConnection.open(self._where)
        try:
            await self._send(lambda: asyncio.ensure_future(self._put(connection)))
        finally:
            await connection.close()

    async def _put(self, connection: RemotingConnection) -> bool:
        """Return whether to go on: False when the connection is lost or the send refused."""
        count = self._rng.choice([1, 1, self._rng.randint(2, BATCH_MAX)])
        messages = [self._message(tags(count)) for _ in range(count)]
        queue = self._rng.choice(self._queues)
        try:
            named = self._named(messages[0][0]) if count == 1 else ()
            answer = await connection.put(queue, [body for _, body in messages], named)
        except ConnectionLostError:
            return False
        return self._note({key: len(body) for key, body in messages}, queue, answer)

    def _named(self, key: Key) -> tuple[str, ...]:
        """Return the light queues that a message names: of its producer, of all, both or none."""
        mine = f"{LIGHT}{self._number}"
        ways: list[tuple[str, ...]] = [(), (mine,), (LIGHT_OF_ALL,), (mine, LIGHT_OF_ALL)]
        named = self._rng.choice(ways) if self._light else ()
        if named:
            self._history.light[key] = named
        return named

    def _note(self, sizes: dict[Key, int], queue: Queue, answer: RemotingCommand) -> bool:
        if answer.code != 0:
            self.refused += 1
            return False
        assert int(answer.ext["queueId"]) == queue.number
        first = int(answer.ext["queueOffset"])
        names = zip(sizes, answer.ext["msgId"].split(","), strict=True)
        for index, (key, name) in enumerate(names):
            _, log_offset = parse_offset_message_id(name)
            place = Place(Protocol.ROCKETMQ, queue, first + index, log_offset)
            self._acked(key, place, sizes[key])
        return True
