"""The loop that reads one partition and hands its messages to a handler, one after the other."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from imago_client.errors import ClientClosedError, ClientError
from imago_client.metaq.reading.cursor import DELAY_STEPS
from imago_client.metaq.reading.delivery import is_wanted
from imago_client.supervision import HandlerCancelledError
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_client.metaq.reading.cursor import FetchCursor
    from imago_client.metaq.reading.delivery import MessageFilter, SeenIds
    from imago_client.metaq.values import Fetched, MetaqMessage
    from imago_client.supervision import Supervisor

log = logging.getLogger(__name__)


class FetchSettings(Protocol):
    """What a consumer's configuration says of it."""

    @property
    def group(self) -> str: ...
    @property
    def delay_s_max(self) -> float: ...
    @property
    def retries_max(self) -> int: ...


@dataclass(slots=True, eq=False)
class PartitionDelivery:
    """What all partitions of one consumer do with a message."""

    settings: FetchSettings
    tasks: Supervisor
    seen: SeenIds
    on_reject: Callable[[MetaqMessage, Exception], Awaitable[None]] | None = None

    async def fetch_loop(
        self,
        fetch: Callable[[FetchCursor], Awaitable[Fetched]],
        cursor: FetchCursor,
        handler: Callable[[MetaqMessage], Awaitable[None]],
        message_filter: MessageFilter | None = None,
    ) -> None:
        """Go on from where the cursor is until it ends, or the client is closed."""
        while True:
            try:
                messages = cursor.take(await fetch(cursor))
            except ClientClosedError:
                return
            except (ClientError, ProtocolError) as error:
                log.warning("fetch_failed group=%s error=%s", self.settings.group, error)
                cursor.wait()
                messages = []
            for message in messages:
                if is_wanted(
                    message, self.settings.group, self.seen, message_filter, note_failed_filter
                ):
                    cursor.handling = True
                    try:
                        await self._handle(message, handler)
                    finally:
                        cursor.handling = False
                    self.seen.add(message.message_id)
                cursor.advance(message)
                if cursor.ending:
                    return
            if cursor.delay_s:
                await asyncio.sleep(cursor.delay_s)

    async def _handle(
        self, message: MetaqMessage, handler: Callable[[MetaqMessage], Awaitable[None]]
    ) -> None:
        failures = 0
        while True:
            try:
                await self._call(handler(message))
            except Exception as error:
                failures += 1
                log.warning(
                    "handler_failed partition=%s offset=%d failures=%d",
                    message.partition,
                    message.offset,
                    failures,
                    exc_info=error,
                )
                retries_max = self.settings.retries_max
                if failures > retries_max and await self._is_rejected(message, error):
                    return
                step_s = self.settings.delay_s_max / DELAY_STEPS
                await asyncio.sleep(min(self.settings.delay_s_max, failures * step_s))
            else:
                return

    async def _call(self, called: Awaitable[None]) -> None:
        """Wait for a handler; a cancellation that it lets out, and is not ours, is a failure."""
        try:
            await called
        except asyncio.CancelledError as error:
            if self.tasks.is_cancelled():
                raise
            raise HandlerCancelledError from error

    async def _is_rejected(self, message: MetaqMessage, error: Exception) -> bool:
        if self.on_reject is None:
            return False
        try:
            await self._call(self.on_reject(message, error))
        except Exception:
            log.exception("on_reject_failed partition=%s", message.partition)
            return False
        return True


def note_failed_filter(message: MetaqMessage, error: Exception) -> None:
    """Log that a filter has failed, and what becomes of the message."""
    log.warning(
        "filter_failed partition=%s offset=%d; the message is left out",
        message.partition,
        message.offset,
        exc_info=error,
    )
