"""The asyncio producer that waits for no answer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from imago_client.errors import ClientError
from imago_client.metaq.groups.group_producer import RECOVER_S
from imago_client.metaq.groups.local_messages import LocalMessage, LocalMessages, names
from imago_client.metaq.values import put_command
from imago_client.supervision import Supervisor

if TYPE_CHECKING:
    from pathlib import Path

    from imago_client.metaq.groups.group_producer import MetaqGroupProducer

log = logging.getLogger(__name__)

WINDOW_UNITS: Final = 20_000
UNIT_BYTES: Final = 4096


class OnewayProducer:
    """[AsyncMessageProducer] Takes messages at once and tells nobody what became of them.

    Those under way have a window of `window` units, one for each 4 KiB of a message. What finds no
    room in it, or fails, is kept in a folder and sent later; so a message may come twice, and out
    of order. Use it as `async with`: the end waits for what is under way.
    """

    def __init__(
        self,
        producer: MetaqGroupProducer,
        folder: Path,
        *,
        window: int = WINDOW_UNITS,
        every_s: float = RECOVER_S,
    ) -> None:
        self._producer, self._folder, self._every_s = producer, folder, every_s
        self._left = window
        self._stores: dict[str, LocalMessages] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._tasks = Supervisor("oneway", pause_s=1.0)
        self.failures: deque[str] = deque(maxlen=16)
        """The newest reasons why messages were kept."""

    @property
    def kept(self) -> int:
        """How many messages wait in the folder."""
        return sum(len(each) for each in self._stores.values())

    async def start(self) -> None:
        """Take over what an earlier process has kept."""
        for topic in names(self._folder):
            self._store(topic)
        self._tasks.start()
        self._tasks.keep(self._resend_for_ever, "resend")

    async def stop(self) -> None:
        """Wait for what is under way; what is kept is left to the next one."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))
        async with self._sending:  # what is being sent again is forgotten first
            await self._tasks.end()
        stores, self._stores = self._stores, {}
        for store in stores.values():
            store.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def send(self, topic: str, payload: bytes, *, attribute: str | None = None) -> None:
        """Take a message. UsageError: it can never be put. LocalStoreFullError: no room at all."""
        put_command(topic, payload, attribute, 0, 0)
        units = max(1, len(payload) // UNIT_BYTES)
        if units > self._left:
            self._keep(topic, payload, attribute, "the window is full")
            return
        self._left -= units
        task = asyncio.create_task(self._send(topic, bytes(payload), attribute, units))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def resend(self) -> int:
        """Send what is kept; return how many messages that were."""
        sent = 0
        for topic, store in tuple(self._stores.items()):
            for number, kept in store:
                async with self._sending:
                    try:
                        await self._producer.send(topic, kept.payload, attribute=kept.attribute)
                    except ClientError as error:
                        self.failures.append(str(error))
                        break
                    store.remove(number)
                    sent += 1
        return sent

    async def _send(self, topic: str, payload: bytes, attribute: str | None, units: int) -> None:
        try:
            await self._producer.send(topic, payload, attribute=attribute)
        except ClientError as error:
            self._keep(topic, payload, attribute, str(error))
        finally:
            self._left += units

    async def _resend_for_ever(self) -> None:
        while True:
            await self.resend()
            await asyncio.sleep(self._every_s)

    def _keep(self, topic: str, payload: bytes, attribute: str | None, reason: str) -> None:
        self.failures.append(reason)
        log.warning("message_kept topic=%s reason=%s", topic, reason)
        self._store(topic).append(LocalMessage(topic, bytes(payload), attribute))

    def _store(self, topic: str) -> LocalMessages:
        found = self._stores.get(topic)
        if found is None:
            found = self._stores[topic] = LocalMessages(self._folder, topic)
        return found
