"""What becomes of a message that its handler has refused again and again: dropped, or kept and
handed to it later, as the original's reject policies do."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from imago_client.metaq.groups.local_messages import LocalMessage, LocalMessages, names
from imago_client.metaq.values import MetaqMessage, Partition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from imago_client.supervision import Supervisor

log = logging.getLogger(__name__)

RECOVER_S: Final = 300.0
FIRST_RECOVER_S: Final = 5.0


class RejectionPolicy(Protocol):
    """Takes what a consumer gives up, so that it can go on with the next message."""

    def begin(
        self,
        group: str,
        handlers: dict[str, Callable[[MetaqMessage], Awaitable[None]]],
        tasks: Supervisor,
    ) -> None:
        """A consumer begins: work for it is kept in `tasks`, which end with it."""

    async def reject(self, message: MetaqMessage, error: Exception) -> None:
        """Take a message. An exception: it was not taken, and is tried again."""

    def end(self) -> None:
        """The consumer has ended."""


class DropPolicy:
    """[DropPolicy] Logs the message, and forgets it."""

    def begin(self, group: str, handlers: object, tasks: object) -> None: ...

    async def reject(self, message: MetaqMessage, error: Exception) -> None:
        log.error("message_dropped partition=%s offset=%d error=%r",
                  message.partition, message.offset, error)  # fmt: skip

    def end(self) -> None: ...


class RecoverManager:
    """[LocalRecoverPolicy] Keeps messages in a folder, and hands them to their handler again and
    again until it takes them, over restarts, too. They come out of their order."""

    def __init__(
        self, folder: Path, *, every_s: float = RECOVER_S, first_s: float = FIRST_RECOVER_S
    ) -> None:
        self._folder, self._every_s, self._first_s = folder, every_s, first_s
        self._stores: dict[str, LocalMessages] = {}
        self._handlers: dict[str, Callable[[MetaqMessage], Awaitable[None]]] = {}
        self._group = ""

    @property
    def count(self) -> int:
        """How many messages wait."""
        return sum(len(each) for each in self._stores.values())

    def begin(
        self,
        group: str,
        handlers: dict[str, Callable[[MetaqMessage], Awaitable[None]]],
        tasks: Supervisor,
    ) -> None:
        self._group, self._handlers = group, handlers
        known = set(names(self._folder))
        try:
            for topic in handlers:
                if f"{topic}@{group}" in known:
                    self._store(topic)
        except BaseException:
            self.end()
            raise
        tasks.keep(self._redeliver_for_ever, "recover")

    async def reject(self, message: MetaqMessage, error: Exception) -> None:
        partition = message.partition
        kept = LocalMessage(
            partition.topic,
            message.payload,
            message.attribute,
            message.message_id,
            partition.server,
            partition.broker_id,
            partition.number,
            message.offset,
            message.next_offset,
        )
        self._store(partition.topic).append(kept)
        log.warning("message_kept partition=%s offset=%d error=%r folder=%s",
                    partition, message.offset, error, self._folder)  # fmt: skip

    def end(self) -> None:
        stores, self._stores = self._stores, {}
        for store in stores.values():
            store.close()

    def _store(self, topic: str) -> LocalMessages:
        found = self._stores.get(topic)
        if found is None:
            name = f"{topic}@{self._group}"
            found = self._stores[topic] = LocalMessages(self._folder, name)
        return found

    async def _redeliver_for_ever(self) -> None:
        await asyncio.sleep(self._first_s)
        while True:
            for topic, store in tuple(self._stores.items()):
                for number, kept in store:
                    if await self._is_taken(self._handlers[topic], _message(kept)):
                        store.remove(number)
            await asyncio.sleep(self._every_s)

    async def _is_taken(
        self, handler: Callable[[MetaqMessage], Awaitable[None]], message: MetaqMessage
    ) -> bool:
        try:
            await handler(message)
        except Exception as error:
            log.warning("recover_failed partition=%s offset=%d error=%r; tried again in %g s",
                        message.partition, message.offset, error, self._every_s)  # fmt: skip
            return False
        return True


def _message(kept: LocalMessage) -> MetaqMessage:
    partition = Partition(kept.topic, kept.server, kept.partition, kept.broker_id)
    return MetaqMessage(
        partition, kept.offset, kept.next_offset, kept.message_id, kept.attribute, kept.payload
    )
