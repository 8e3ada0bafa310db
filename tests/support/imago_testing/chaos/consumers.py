"""Consumers that note every message they see, and the group's progress."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from imago_testing.chaos import payload
from imago_testing.chaos.connections import (
    ConnectionLostError,
    MetaqConnection,
    RefusedError,
    RemotingConnection,
)
from imago_testing.chaos.history import Progress, Protocol, Queue, Step, Stored
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages
from imago_wire.text.commands import Value
from imago_wire.text.message import parse_block
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from imago_testing.chaos.connections import Where
    from imago_testing.chaos.history import History, LightMessages, Messages
    from imago_wire.records.record import StoredMessage
    from imago_wire.remoting.command import RemotingCommand
    from imago_wire.text.message import Message

_RETRY_SECONDS = 0.02
_EMPTY_SECONDS = 0.02
_EMPTY_MAX = 3
"""Empty answers that are the end of a queue: one may mean damage that is being put right."""
_HOLD_MS = 500
_READ_TRIES = 10
_AGAIN_SECONDS = 0.2
_ELSEWHERE = "NOT_THE_MASTER"
"""Remark of an empty answer that sends the consumer to the master."""


class Consumer:
    """Reads one queue; after stop() to its end, and returns."""

    def __init__(
        self, where: Where, queue: Queue, history: History, *, tolerant: bool = False
    ) -> None:
        """A tolerant consumer connects again when a broker refuses what it is asked."""
        self._where = where
        self._tolerated = (RefusedError,) if tolerant else ()
        self._queue = queue
        self._history = history
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        while True:
            try:
                if await self._session():
                    return
            except (ConnectionLostError, OSError, *self._tolerated):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _session(self) -> bool:
        """Read over one connection; True: the end is reached and nothing more will come."""
        raise NotImplementedError

    def _saw(self, protocol: Protocol, found: list[Stored], asked: int, told: int) -> None:
        """Note what was read from the place `asked` on, and where to go on."""
        self._history.reads += ((protocol, self._queue, stored) for stored in found)
        if not found and told != asked:
            self._history.astray.append((protocol, self._queue, asked))


class RocketmqConsumer(Consumer):
    """A member of the group: begins where the group's committed offset is, and commits."""

    async def _session(self) -> bool:
        connection = await RemotingConnection.open(self._where)
        self._note(Step.LOST, 0)
        try:
            offset = await self._committed(connection)
            empty = 0
            while empty < _EMPTY_MAX:
                at_end = self._stopping
                asked = offset
                found, offset = await pull(connection, self._queue, asked, _HOLD_MS)
                self._saw(Protocol.ROCKETMQ, found, asked, offset)
                if found:
                    await self._commit(connection, offset)
                empty = empty + 1 if at_end and not found else 0
            return True
        finally:
            await connection.close()

    async def _committed(self, connection: RemotingConnection) -> int:
        answer = await connection.committed(self._queue)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        expect_success(answer)
        self._note(Step.TOLD, int(answer.ext["offset"]))
        return int(answer.ext["offset"])

    async def _commit(self, connection: RemotingConnection, offset: int) -> None:
        self._note(Step.TRIED, offset)
        answer = await connection.commit(self._queue, offset)
        expect_success(answer)
        self._note(Step.COMMITTED, offset)

    def _note(self, step: Step, offset: int) -> None:
        self._history.progress.append(Progress(self._queue, step, offset))


class MetaqConsumer(Consumer):
    """Keeps its position itself, as MetaQ's consumers do in ZooKeeper."""

    _position = 0

    async def _session(self) -> bool:
        connection = await MetaqConnection.open(self._where)
        try:
            empty = 0
            while empty < _EMPTY_MAX:
                at_end = self._stopping
                asked = self._position
                found, self._position = await get(connection, self._queue, asked)
                self._saw(Protocol.METAQ, found, asked, self._position)
                empty = empty + 1 if at_end and not found else 0
                if not found:
                    await asyncio.sleep(_AGAIN_SECONDS if at_end else _EMPTY_SECONDS)
            return True
        finally:
            await connection.close()


def from_rocketmq(message: StoredMessage) -> Stored:
    """Return a pulled message as a value."""
    content = payload.content(message.tags, message.body)
    key = payload.decode(message.body)
    return Stored(message.queue_offset, key, message.physical_offset, 1, content)


def from_metaq(message: Message, position: int) -> Stored:
    """Return a message of a block that begins at this position as a value."""
    content = payload.content(message.attribute, message.payload)
    key = payload.decode(message.payload)
    return Stored(position + message.at, key, message.id, message.size, content)


def expect_success(answer: RemotingCommand) -> None:
    """RefusedError: it is another answer."""
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedError(str(answer))


async def pull(
    connection: RemotingConnection,
    queue: Queue,
    offset: int,
    hold_ms: int = 0,
    value: Callable[[StoredMessage], Stored] = from_rocketmq,
) -> tuple[list[Stored], int]:
    """Return what one pull found, and the next offset."""
    answer = await connection.pull(queue, offset, hold_ms)
    if answer.remark == _ELSEWHERE:
        raise RefusedError(str(answer))
    if answer.code == ResponseCode.PULL_NOT_FOUND:
        return [], offset
    if answer.code in {ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY}:
        return [], int(answer.ext["nextBeginOffset"])
    expect_success(answer)
    messages = decode_messages(answer.body)
    return [value(each) for each in messages], int(answer.ext["nextBeginOffset"])


async def get(connection: MetaqConnection, queue: Queue, position: int) -> tuple[list[Stored], int]:
    """Return what one get found, and the next position."""
    answer = await connection.get(queue, position)
    if not isinstance(answer, Value):
        if answer.code == Status.MOVED:
            return [], int(answer.text)
        if answer.code != Status.NOT_FOUND:
            raise RefusedError(f"get of {queue} at {position}: {answer}")
        return [], position
    messages = list(parse_block(answer.body))
    return [from_metaq(each, position) for each in messages], position + sum(
        each.size for each in messages
    )


async def read_whole(metaq_at: Where, rocketmq_at: Where, queues: Sequence[Queue]) -> Messages:
    """Read queues from their starts to their ends, through both protocols.

    Where a reader meets damage that is being put right it is told to ask again: that is no end.
    """
    metaq = await MetaqConnection.open(metaq_at)
    remoting = await RemotingConnection.open(rocketmq_at)
    whole: Messages = {}
    try:
        for queue in queues:
            pulled = await _pull_all(remoting, queue)
            whole[Protocol.METAQ, queue] = await _get_all(metaq, queue, len(pulled))
            whole[Protocol.ROCKETMQ, queue] = pulled
    finally:
        await metaq.close()
        await remoting.close()
    return whole


async def read_light(rocketmq_at: Where, names: Iterable[str]) -> LightMessages:
    """Read light queues from their starts to their ends, with the places that messages tell.

    One that is not there has no messages: none of them was stored, or all have expired.
    """
    remoting = await RemotingConnection.open(rocketmq_at)
    found: LightMessages = {}
    try:
        for name in names:
            answer = await remoting.pull(Queue(name, 0), 0, 0)
            is_there = answer.code != ResponseCode.TOPIC_NOT_EXIST
            value = partial(_from_light, name)
            found[name] = await _pull_all(remoting, Queue(name, 0), value) if is_there else []
    finally:
        await remoting.close()
    return found


def _from_light(name: str, message: StoredMessage) -> Stored:
    told = message.properties
    places = zip(
        told["INNER_MULTI_DISPATCH"].split(","),
        told["INNER_MULTI_QUEUE_OFFSET"].split(","),
        strict=True,
    )
    return replace(from_rocketmq(message), at=int(dict(places)[name]))


async def _pull_all(
    connection: RemotingConnection,
    queue: Queue,
    value: Callable[[StoredMessage], Stored] = from_rocketmq,
) -> list[Stored]:
    messages: list[Stored] = []
    at = tries = 0
    while tries < _READ_TRIES:
        found, behind = await pull(connection, queue, at, value=value)
        messages += found
        if behind == at:
            answer = await connection.end(queue)
            expect_success(answer)
            if at >= int(answer.ext["offset"]):
                break
            tries += 1
            await asyncio.sleep(_AGAIN_SECONDS)
        at = behind
    return messages


async def _get_all(connection: MetaqConnection, queue: Queue, count: int) -> list[Stored]:
    """Read to the end, which is not there before so many messages have come."""
    messages: list[Stored] = []
    at = tries = 0
    while tries < _READ_TRIES:
        found, behind = await get(connection, queue, at)
        messages += found
        if behind == at:
            if len(messages) >= count:
                break
            tries += 1
            await asyncio.sleep(_AGAIN_SECONDS)
        at = behind
    return messages
