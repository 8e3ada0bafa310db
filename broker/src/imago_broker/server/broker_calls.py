"""Requests of this broker to others of the cluster, for what it serves and they have.

Each call has a connection of its own: they are few, of clients that read what was sent before a
queue was moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from imago_broker.model.access.users import MEMBER, Introduced
from imago_broker.server.introductions import TAKEN, target_of
from imago_broker.service.groups.channel import Reply
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import FrameDecoder, encode_frame

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.ports import Registry
    from imago_broker.server.introductions import Introductions

log = logging.getLogger(__name__)

CALL_SECONDS_MAX: Final = 2.0
"""RocketMQ's forwardTimeout is 3 s, which is when its clients give up."""
CALLS_MAX: Final = 256
"""At a time; more wait."""
READ_BYTES: Final = 1 << 18
_ITSELF: Final = Introduced(MEMBER, "", 0)


class MasterCalls:
    """Asks the masters of other shards."""

    def __init__(
        self,
        registry: Registry,
        *,
        ways: Callable[[], Sequence[ssl.SSLContext | None]],
        introductions: Introductions | None,
    ) -> None:
        """`ways`: with what other brokers are trusted, None without TLS; the next where one fails.

        `introductions`: what tells them that a broker asks, with access control.
        """
        self._registry, self._ways, self._introductions = registry, ways, introductions
        self._turns = asyncio.Semaphore(CALLS_MAX)

    async def ask(
        self,
        broker: str,
        code: int,
        ext: Mapping[str, str],
        client: Introduced | None = None,
        *,
        body: bytes = b"",
    ) -> Reply:
        """Return the answer of the master of this name, or why there is none.

        `client`: for whom, who may what it asks for; None: for this broker itself.
        """
        address = self._address(broker)
        if address is None:
            return Reply(ResponseCode.SYSTEM_ERROR, f"broker {broker} has no master at the moment")
        command = RemotingCommand(code=code, opaque=1, ext=dict(ext), body=body)
        try:
            async with self._turns, asyncio.timeout(CALL_SECONDS_MAX):
                answer = await self._answer(*address, encode_frame(command), client or _ITSELF)
        except (OSError, TimeoutError, ProtocolError, EOFError) as error:
            reason = str(error) or "no answer in time"
            log.warning("broker_not_asked broker=%s code=%d reason=%s", broker, code, reason)
            return Reply(ResponseCode.SYSTEM_ERROR, f"broker {broker} did not answer: {reason}")
        return Reply(answer.code, answer.remark, dict(answer.ext), answer.body)

    def _address(self, broker: str) -> tuple[str, int] | None:
        view = self._registry.view()
        for member in view.brokers:
            if member.broker_name == broker and view.leads(member):
                return member.host, member.rocketmq
        return None

    async def _answer(
        self, host: str, port: int, frame: bytes, client: Introduced
    ) -> RemotingCommand:
        """Ask in each way until one is answered: asked twice is no other than once."""
        *others, last = self._ways()
        for way in others:
            with contextlib.suppress(OSError, EOFError):
                return await self._call(host, port, frame, way, client)
        return await self._call(host, port, frame, last, client)

    async def _call(
        self, host: str, port: int, frame: bytes, way: ssl.SSLContext | None, client: Introduced
    ) -> RemotingCommand:
        reader, writer = await asyncio.open_connection(host, port, ssl=way)
        decoder, made = FrameDecoder(), self._introductions
        try:
            if made is not None:
                writer.write(made.written(client, target_of(host, port)))
            writer.write(frame)
            if made is not None and await reader.read(1) != TAKEN:
                raise EOFError("it takes no introductions; is acl.enabled the same on all brokers?")
            while True:
                data = await reader.read(READ_BYTES)
                if not data:
                    raise EOFError("it has closed the connection")
                decoder.feed(data)
                while (answer := decoder.next_frame()) is not None:
                    if answer.is_response:
                        return answer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
