"""A relay's own connection, to the broker that has become the master."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from imago_wire.errors import ProtocolError
from imago_wire.remoting.frame import FrameDecoder, encode_frame

if TYPE_CHECKING:
    from imago_broker.server.relay import Relay
    from imago_wire.remoting.command import RemotingCommand

WRITE_BYTES_PAUSE = 1 << 20
"""Of bytes that one side has not taken, above which the other is not read."""

JOIN_SECONDS_MAX = 2.0
"""How long the new master may take to answer the repeated heartbeat."""


class Upstream(asyncio.Protocol):
    """The connection to the new master."""

    def __init__(self, relay: Relay, heartbeat: RemotingCommand | None) -> None:
        self._relay = relay
        self._heartbeat = heartbeat
        self._transport: asyncio.Transport | None = None
        self._joining: FrameDecoder | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_PAUSE)
        if self._heartbeat is None:
            self._relay.connected(self, joining=False)
            return
        self._joining = FrameDecoder()
        self._relay.connected(self, joining=True)
        self._transport.write(encode_frame(self._heartbeat))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(JOIN_SECONDS_MAX, self._unanswered)

    def data_received(self, data: bytes) -> None:
        decoder, beat = self._joining, self._heartbeat
        if decoder is None or beat is None:
            self._relay.answer(data)
            return
        decoder.feed(data)
        try:
            while frame := decoder.next_frame():
                if _answers(frame, beat):
                    self._joined(decoder)
                    return
                self._relay.answer(encode_frame(frame))
        except ProtocolError as error:
            self._lost(f"bad answer: {error}")

    def _joined(self, decoder: FrameDecoder) -> None:
        # Nothing of the client's has been passed on yet: what may follow are whole frames.
        self._joining = None
        if self._timer is not None:
            self._timer.cancel()
        rest = decoder.rest()
        if rest:
            self._relay.answer(rest)
        self._relay.joined()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._relay.upstream_slow(True)

    def resume_writing(self) -> None:
        self._relay.upstream_slow(False)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._gone:
            self._gone = True
            self._relay.upstream_lost(str(exc) if exc else "closed by the other side")

    def write(self, data: bytes) -> None:
        """Pass requests on."""
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def write_eof(self) -> None:
        """Say that no more requests come."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def read(self, wanted: bool) -> None:
        """Read what comes, or leave it to the kernel."""
        if self._transport is not None and not self._transport.is_closing():
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def linger(self, seconds: float) -> None:
        """Stay for answers that are owed, then close."""
        if self._transport is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._transport.close)

    def _unanswered(self) -> None:
        self._lost(f"no answer to a heartbeat in {JOIN_SECONDS_MAX:g} s")

    def _lost(self, reason: str) -> None:
        self.abort()
        self._relay.upstream_lost(reason)

    def abort(self) -> None:
        """Close at once; nobody is told."""
        self._gone = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()


def _answers(frame: RemotingCommand, request: RemotingCommand) -> bool:
    return frame.is_response and frame.opaque == request.opaque
