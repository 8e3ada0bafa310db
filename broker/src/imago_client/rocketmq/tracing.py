"""Sends what a client that traces tells of its messages, beside its other work."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from imago_client.config import ProducerConfig
from imago_client.core.sending import sending, tracing
from imago_client.core.sending.outgoing import prepare_with_care
from imago_client.errors import ClientError
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.core.sending.tracing import Trace
    from imago_client.core.state import ClientState
    from imago_client.messages import SendResult
    from imago_client.received import ReceivedMessage
    from imago_client.rocketmq.driver import Driver

log = logging.getLogger(__name__)

WAITING_MAX: Final = 2048
"""Records that are not sent yet; more are dropped, as by the Java client."""
PAUSE_S: Final = 0.5
"""What comes within it goes together."""


class Tracer:
    """One for a client with `ClientConfig.trace`. A trace that cannot be sent is dropped.

    What the trace topic itself holds is not traced: a consumer of it would never come to an end.
    """

    def __init__(self, state: ClientState, driver: Driver) -> None:
        self._state, self._driver = state, driver
        self._topic = state.config.trace_topic
        self._config = ProducerConfig(group=tracing.GROUP)
        self._rotations = sending.Rotations(state.rng.getrandbits(16))
        self._waiting: list[Trace] = []
        self._sending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.dropped = 0
        """Records that found no room, or that no broker took."""

    def note(self, traces: Iterable[Trace]) -> None:
        """Have this told soon."""
        for trace in traces:
            if trace.topic == self._topic:
                continue
            if len(self._waiting) < WAITING_MAX:
                self._waiting.append(trace)
            else:
                self.dropped += 1
        if self._waiting and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send_soon(), name="traces")

    def note_sent(self, group: str, outgoing: Outgoing, result: SendResult, began_s: float) -> None:
        """Have a send told that a broker acknowledged."""
        self.note(tracing.sent(group, outgoing, result, self._since_ms(began_s)))

    def handling(self, group: str, batch: Sequence[ReceivedMessage]) -> Callable[[bool], None]:
        """Have it told that a handler gets messages; return what tells how it has ended."""
        began_s, began_ms = self._state.clock_s(), self._state.clock_ms()
        request_id = self._state.unique_keys.next_key(began_ms)
        self.note(tracing.before(group, request_id, batch, began_ms))

        def ended(succeeded: bool) -> None:
            took_ms, now_ms = self._since_ms(began_s), self._state.clock_ms()
            told = tracing.after(group, request_id, batch, now_ms, took_ms, succeeded=succeeded)
            self.note(told)

        return ended

    def _since_ms(self, began_s: float) -> int:
        return round((self._state.clock_s() - began_s) * 1000)

    async def close(self) -> None:
        """Send what waits, after what is being sent."""
        self._closing.set()
        if self._sending is not None:
            try:
                await asyncio.wait([self._sending])
            finally:
                self._sending.cancel()
        await self._send_all()

    async def _send_soon(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S):
                    await self._closing.wait()
            await self._send_all()

    async def _send_all(self) -> None:
        told, self._waiting = self._waiting, []
        for part in tracing.parts(told):
            await self._send(part)

    async def _send(self, part: Sequence[Trace]) -> None:
        try:
            told = tracing.message(part, self._topic)
            now_ms = self._state.clock_ms()
            key = self._state.unique_keys.next_key(now_ms)
            outgoing = prepare_with_care(self._config, told, key, now_ms)  # no interceptor's
            operation = sending.send(self._state, self._config, self._rotations, outgoing)
            await self._driver.run(operation)
        except (ClientError, ProtocolError) as error:
            self.dropped += len(part)
            log.warning("trace_not_sent topic=%s error=%s", self._topic, error)
