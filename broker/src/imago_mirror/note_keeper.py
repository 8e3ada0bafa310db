"""Reads and writes a mirror's notes and orders: messages of a topic of its own at the target."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from imago_client import Message
from imago_client.errors import ClientError, TryAgainError
from imago_mirror.core.notes import (
    TOPIC_PREFIX,
    MirrorNote,
    Order,
    decode,
    decode_order,
    encode,
    encode_order,
)

if TYPE_CHECKING:
    from imago_client import Client
    from imago_client.message_queue import MessageQueue

_LOOKED_AT_MAX = 200
"""Messages from a queue's end back, among which a note is looked for: orders may follow it."""
_RETENTION_MS = 7 * 86_400_000


class NoteKeeper:
    """The topic has a queue on each shard; whichever takes messages gets the next note."""

    def __init__(self, target: Client, name: str) -> None:
        self._target, self.topic = target, TOPIC_PREFIX + name
        self._reader = target.pull_consumer(TOPIC_PREFIX + name)
        self._producer = target.producer()
        self._ends: dict[MessageQueue, int] = {}
        """Up to where orders were read."""

    async def ensure(self) -> tuple[str, MessageQueue]:
        """Make the topic where it is not there; return the target's cluster id, and a queue."""
        await self._target.admin.create_topic(
            self.topic, queues=1, attributes={"retention.ms": str(_RETENTION_MS)}
        )
        queue = (await self._reader.queues(self.topic))[0]
        end = await self._reader.end(queue)
        if end.cluster_id is None:
            raise ClientError(
                "the target's brokers do not tell their cluster; are they Imago's, 0.2 or later?"
            )
        return end.cluster_id, queue

    async def read(self, *, pending: bool = True) -> MirrorNote | None:
        """Return the newest note, and begin to look for orders behind it.

        `pending`: as it will be once the orders are taken that nobody has carried out yet.
        """
        newest, orders = await self._all(self._ends)
        if newest is not None and pending:
            take(newest, orders)  # those that nobody has carried out yet
        return newest

    async def newest(self) -> MirrorNote | None:
        """Return the newest note, from any writer, and pass no order."""
        return (await self._all({}))[0]

    async def _all(self, ends: dict[MessageQueue, int]) -> tuple[MirrorNote | None, list[Order]]:
        queues = await self._reader.queues(self.topic)
        if await self._reader.lost_queues(self.topic):
            raise TryAgainError(
                f"topic {self.topic}: not all of its queues can be read now, and the newest note"
                " may be in one of the others"
            )
        newest: MirrorNote | None = None
        orders: list[Order] = []
        for queue in queues:
            bodies, ends[queue] = await self._bodies(queue)
            for body in bodies:
                note = decode(body)
                if note is not None and (newest is None or note.number >= newest.number):
                    newest = note
                    continue
                if (order := decode_order(body)) is not None:
                    orders.append(order)
        return newest, orders

    async def _bodies(self, queue: MessageQueue) -> tuple[list[bytes], int]:
        end = await self._reader.max_offset(queue)
        at = max(await self._reader.min_offset(queue), end - _LOOKED_AT_MAX)
        bodies: list[bytes] = []
        while at < end:
            pulled = await self._reader.pull(queue, at)
            bodies += [each.body for each in pulled.messages() if each.error is None]
            if pulled.next_offset <= at:
                break
            at = pulled.next_offset
        return bodies, max(at, end)

    async def orders(self) -> list[Order]:
        """Return what was ordered since the last call."""
        found: list[Order] = []
        for queue in await self._reader.queues(self.topic):
            end = await self._reader.max_offset(queue)
            at = self._ends.setdefault(queue, 0)
            while at < end:
                pulled = await self._reader.pull(queue, at)
                for message in pulled.messages():
                    order = None if message.error else decode_order(message.body)
                    found += [] if order is None else [order]
                if pulled.next_offset <= at:
                    break
                at = pulled.next_offset
            self._ends[queue] = at
        return found

    async def write(self, note: MirrorNote) -> None:
        """Keep a note."""
        note.number += 1
        note.at_ms = time.time_ns() // 1_000_000
        await self._producer.send(Message(self.topic, encode(note)))

    async def order(self, order: Order) -> None:
        """Tell whoever runs the mirror what it shall do."""
        await self._producer.send(Message(self.topic, encode_order(order)))


def take(note: MirrorNote, orders: list[Order]) -> bool:
    """Have the note say what the newest of the orders says; whether one was newer than it."""
    newest = max(orders, default=None)
    if newest is None or newest.number <= note.order:
        return False
    note.order, note.state = newest
    note.report = {}
    return True
