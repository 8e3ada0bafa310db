"""A client as RocketMQ 5's SDKs are: it sends, receives and acknowledges over gRPC all the time.

What was answered is not lost, and what is acknowledged never comes again. Its topic has one queue,
so that an answer says where a message is: what has expired nobody has to get.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from imago_testing.peers.sdk_calls import acknowledged, asks, message, sends
from imago_testing.peers.sdk_peer import SdkPeer
from imago_wire.grpc.codes import SdkCode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from imago_testing.chaos.connections import Where
    from imago_testing.chaos.history import History

GRPC_PORT: Final = 8081
_ANSWER_SECONDS_MAX = 10.0
_END_SECONDS_MAX = 200.0
_RETRY_SECONDS = 0.2
_PAUSE_SECONDS = 0.05
_SENDS = 3

Shown = tuple["Mapping[str, str]", "ssl.SSLContext | None"]
"""The headers of a call, and what a connection trusts."""


class SdkWorker:
    """A producer and a simple consumer of one topic."""

    def __init__(
        self, where: Where, topic: str, group: str, history: History, shown: Callable[[], Shown]
    ) -> None:
        self._where, self._topic, self._group = where, topic, group
        self._history, self._shown = history, shown
        self._sent: dict[str, int] = {}
        """All that was answered, and where it is."""
        self._done: set[str] = set()
        self._number = 0
        self._until = float("inf")

    def stop(self) -> None:
        """Send no more; receive what is left."""
        self._until = time.monotonic() + _END_SECONDS_MAX

    @property
    def _stopping(self) -> bool:
        return self._until < float("inf")

    async def run(self) -> None:
        """Work until everything is acknowledged, or time is up."""
        while not self._ended():
            try:
                await self._session()
            except (OSError, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)

    def note_end(self, low: int) -> None:
        """Say what was lost. `low`: the first message of the queue that has not expired."""
        left = [name for name, at in self._sent.items() if at >= low and name not in self._done]
        self._history.sdk_lost += [f"{name} of {self._topic}" for name in left]
        if not self._done:
            self._history.idle.append("no client over gRPC got a message")

    def _ended(self) -> bool:
        done = self._stopping and self._done.issuperset(self._sent)
        return done or time.monotonic() > self._until

    async def _session(self) -> None:
        headers, trusts = self._shown()
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            address = await self._where()
            peer = await SdkPeer.connect(GRPC_PORT, address.host, trusts)
        try:
            while not self._ended():
                for _ in range(0 if self._stopping else _SENDS):
                    await self._send(peer, headers)
                await self._consume(peer, headers)
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            await peer.close()

    async def _send(self, peer: SdkPeer, headers: Mapping[str, str]) -> None:
        self._number += 1
        name = f"{self._number:08X}"
        made = sends(message(self._topic, name.encode(), message_id=name))
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            answer = await peer.call("SendMessage", made, headers)
        if answer.status.code != SdkCode.OK:
            raise ConnectionError(str(answer.status))
        self._sent[name] = answer.entries[0].offset

    async def _consume(self, peer: SdkPeer, headers: Mapping[str, str]) -> None:
        request = asks(self._group, self._topic, batch_size=8, invisible_ms=10_000)
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            number = peer.start("ReceiveMessage", request, headers)
            answers = await peer.answers(number, "ReceiveMessageResponse")
        if answers[0].status.code not in (SdkCode.OK, SdkCode.MESSAGE_NOT_FOUND):
            raise ConnectionError(str(answers[0].status))
        for one in [answer.message for answer in answers[1:-1]]:
            name = one.system_properties.message_id
            if name in self._done:
                self._history.sdk_again.append(f"{name} of {self._topic}")
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                ack = await acknowledged(
                    peer, one, group=self._group, topic=self._topic, headers=headers
                )
            if ack.status.code == SdkCode.OK:
                self._done.add(name)
