"""A server's side of one HTTP/2 connection that carries gRPC: bytes in, calls out; answers in,
bytes out.

Nothing here knows sockets or time. `feed` takes what came and returns what happened; what has to be
written gathers until `take_output`. What a peer does wrong ends its stream, or with `GOAWAY` the
connection (`closing`): never the caller. Each of its resources is bounded by `Http2Limits`, for
nobody has shown credentials yet: these come with each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_wire.grpc import frames
from imago_wire.grpc.events import CallCame, CallOpened, Event, Gone
from imago_wire.grpc.frames import (
    ACK,
    END_STREAM,
    HEAD_BYTES,
    PREFACE,
    PRIORITY_FLAG,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    H2Error,
    Http2Frame,
    Setting,
)
from imago_wire.grpc.header_blocks import BrokenError, HeaderBlock, HeaderBlocks
from imago_wire.grpc.limits import Http2Limits
from imago_wire.grpc.peer_counts import PeerCounts
from imago_wire.grpc.streams import MESSAGE_HEAD_BYTES, Http2Streams, unpadded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_wire.grpc.windows import Http2Stream

STREAMS_A_FRAME: Final = 16
"""Calls whose windows are changed for the work of one frame that asks for nothing."""


class Http2Connection:
    """One connection."""

    def __init__(self, limits: Http2Limits | None = None) -> None:
        self.limits = limits = limits or Http2Limits()
        self.closing = ""
        """Why the connection ends; it is to be closed once the output is written."""
        self.greeted = False
        """Whether the peer has shown that it speaks HTTP/2."""
        self._input = bytearray()
        self._blocks = HeaderBlocks(limits)
        self._calls = Http2Streams(limits)
        self._write = self._calls.windows.write
        self._last = 0
        self._counts = PeerCounts(limits)
        self._leaving = False
        told = {
            Setting.MAX_CONCURRENT_STREAMS: limits.streams_max,
            Setting.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            Setting.MAX_HEADER_LIST_SIZE: limits.header_bytes_max,
        }
        self._write(frames.settings(told))
        self._write(frames.window_update(0, max(1, limits.window_bytes - WINDOW_DEFAULT)))

    def has(self, number: int) -> bool:
        """Whether a call is under way: not all of its answer was sent."""
        return number in self._calls.known

    @property
    def unsent(self) -> int:
        """Bytes of answers for which the peer's windows have no room."""
        return self._calls.unsent

    @property
    def buffered(self) -> int:
        """Bytes of messages that are not whole."""
        return self._calls.buffered

    def take_output(self) -> bytes:
        """Return, and forget, what is to be written."""
        return self._calls.windows.taken()

    def tick(self) -> None:
        """Begin the next second: what a peer may do so often in one is counted again."""
        self._counts.tick()

    def feed(self, data: bytes) -> list[Event]:
        """Take what came; return what happened."""
        if self.closing:
            return []
        self._input += data
        events: list[Event] = []
        try:
            self._scan(events)
        except BrokenError as broken:
            self.closing = str(broken)
            self._calls.buffered = 0
            self._input.clear()
            self._calls.windows.blocked.clear()
            self._write(frames.goaway(self._last, broken.why, self.closing))
            events += [Gone(number) for number in self._calls.known]
            self._calls.known.clear()
        return events

    def send(self, number: int, messages: bytes, *, last: bool) -> None:
        """Send messages of an answer, framed; `last`: they are the last, and the call is done."""
        self._calls.send(number, messages, last=last)

    def send_whole(self, number: int, answer: bytes) -> None:
        """Send an answer that was made with its frames; `send` is for all others."""
        self._calls.send_whole(number, answer)

    def fail(self, number: int, status: int, text: str) -> None:
        """End a call with a status of gRPC's own."""
        self._calls.fail(number, status, text)

    def cancel(self, number: int, why: H2Error = H2Error.CANCEL) -> None:
        """End a call without an answer."""
        self._calls.cancel(number, why)

    def leave(self) -> None:
        """Tell the peer to begin no more calls here; those that it has go on."""
        if not self._leaving and not self.closing:
            self._leaving = True
            self._write(frames.goaway(self._last, H2Error.NO_ERROR))

    def _scan(self, events: list[Event]) -> None:
        data, at = self._input, 0
        if not self.greeted:
            wanted = PREFACE[: len(data)]
            if data[: len(PREFACE)] != wanted:
                raise BrokenError(H2Error.PROTOCOL_ERROR, "this is no HTTP/2")
            if len(data) < len(PREFACE):
                return
            self.greeted, at = True, len(PREFACE)
        try:
            while len(data) - at >= HEAD_BYTES:
                whole = self._blocks.whole_call(data, at, self._last)
                if whole is not None:
                    at = whole[3]
                    self._take_call(*whole, events)
                    continue
                size, kind, flags, number = frames.read_head(data, at)
                if size > frames.FRAME_BYTES_MAX:
                    raise BrokenError(H2Error.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
                end = at + HEAD_BYTES + size
                if end > len(data):
                    return
                payload = bytes(data[at + HEAD_BYTES : end])
                at = end
                self._take(kind, flags, number, payload, events)
        finally:
            del data[:at]

    def _take_call(
        self,
        number: int,
        headers: Mapping[str, str],
        message: bytes,
        _: int,
        events: list[Event],
    ) -> None:
        """Take a call that came whole, as its two frames would be taken."""
        begun = self._begin(number)
        if room := self._counts.receive(MESSAGE_HEAD_BYTES + len(message)):
            self._write(frames.window_update(0, room))
        if begun is not None:
            begun.open = False
            events.append(CallCame(number, headers, message))

    def _take(
        self, kind: int, flags: int, number: int, payload: bytes, events: list[Event]
    ) -> None:
        blocks = self._blocks
        if blocks.stream and (kind != Http2Frame.CONTINUATION or number != blocks.stream):
            raise BrokenError(H2Error.PROTOCOL_ERROR, "headers are not whole")
        take = _TAKES.get(kind)
        if take is not None:
            take(self, flags, number, payload, events)
        else:
            self._counts.control()  # PRIORITY, and what later versions may add

    def _take_headers(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        payload = unpadded(flags, payload)
        if flags & PRIORITY_FLAG:
            if len(payload) < 5:
                raise BrokenError(H2Error.FRAME_SIZE_ERROR, "a priority is five bytes")
            payload = payload[5:]
        if number % 2 == 0:
            raise BrokenError(H2Error.PROTOCOL_ERROR, f"stream {number} is not a client's")
        self._open(self._blocks.begin(number, flags, payload), events)

    def _take_continuation(self, flags: int, _: int, payload: bytes, events: list[Event]) -> None:
        self._open(self._blocks.go_on(flags, payload), events)

    def _open(self, block: HeaderBlock | None, events: list[Event]) -> None:
        if block is None:
            return
        number, headers, ended = block
        known = self._calls.known.get(number)
        if known is not None:  # trailers of a request: they end it
            if not known.open or not ended:
                raise BrokenError(H2Error.PROTOCOL_ERROR, f"headers again in stream {number}")
            self._calls.half_close(known, events)
            return
        if number <= self._last:
            # The call is over here; the peer did not know that yet.
            self._counts.control()
            return
        stream = self._begin(number)
        if stream is None:
            return
        events.append(CallOpened(number, headers))
        if ended:
            self._calls.half_close(stream, events)

    def _begin(self, number: int) -> Http2Stream | None:
        """Begin a call; None: there are too many, or none are to be begun."""
        self._last = number
        if len(self._calls.known) >= self.limits.streams_max or self._leaving:
            self._counts.reset()
            self._write(frames.reset(number, H2Error.REFUSED_STREAM))
            return None
        return self._calls.open(number)

    def _take_data(self, flags: int, number: int, payload: bytes, events: list[Event]) -> None:
        if not number or number > self._last:
            raise BrokenError(H2Error.PROTOCOL_ERROR, f"data in stream {number}, which is idle")
        self._counts.control(not (payload or flags & END_STREAM))
        if room := self._counts.receive(len(payload)):
            self._write(frames.window_update(0, room))
        stream = self._calls.known.get(number)
        if stream is None:
            return  # of a call that is over
        if not stream.open:
            self._calls.lose(stream, H2Error.STREAM_CLOSED, events)
            return
        self._calls.take(stream, flags, payload, events)

    def _take_reset(self, _: int, number: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise BrokenError(H2Error.FRAME_SIZE_ERROR, "a reset is four bytes")
        if not number or number > self._last:
            raise BrokenError(H2Error.PROTOCOL_ERROR, f"reset of stream {number}, which is idle")
        self._counts.reset()
        stream = self._calls.known.get(number)
        if stream is not None:
            self._calls.forget(stream)
            events.append(Gone(number))

    def _take_settings(self, flags: int, _: int, payload: bytes, __: list[Event]) -> None:
        self._counts.control()
        if flags & ACK:
            return
        if len(payload) % 6:
            raise BrokenError(H2Error.FRAME_SIZE_ERROR, "settings are six bytes each")
        if len(payload) > 6 * self.limits.settings_max:
            raise BrokenError(H2Error.ENHANCE_YOUR_CALM, "too many settings in one frame")
        initial = None
        for key, value in frames.read_settings(payload):
            if key == Setting.INITIAL_WINDOW_SIZE:
                if value > WINDOW_MAX:
                    raise BrokenError(H2Error.FLOW_CONTROL_ERROR, "a window above 2^31 - 1")
                initial = value
        self._write(frames.frame(Http2Frame.SETTINGS, ACK, 0))
        if initial is not None:
            # It is work for each call that is under way, and counts as much.
            self._counts.control(len(self._calls.known) // STREAMS_A_FRAME)
            self._calls.set_initial(initial)

    def _take_ping(self, flags: int, _: int, payload: bytes, __: list[Event]) -> None:
        self._counts.control()
        if len(payload) != 8:
            raise BrokenError(H2Error.FRAME_SIZE_ERROR, "a ping is eight bytes")
        if not flags & ACK:
            self._write(frames.frame(Http2Frame.PING, ACK, 0, payload))

    def _take_goaway(self, _: int, __: int, ___: bytes, ____: list[Event]) -> None:
        self._leaving = True

    def _take_window(self, _: int, number: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise BrokenError(H2Error.FRAME_SIZE_ERROR, "a window update is four bytes")
        grown = int.from_bytes(payload, "big") & WINDOW_MAX
        if not number:
            self._calls.windows.room += grown
            if not grown or self._calls.windows.room > WINDOW_MAX:
                raise BrokenError(H2Error.FLOW_CONTROL_ERROR, "the window cannot grow so")
            self._counts.control(not self._calls.windows.blocked)
            self._calls.send_blocked()
            return
        stream = self._calls.known.get(number)
        if stream is None:
            self._counts.control()
            return
        self._counts.control(not stream.unsent)
        stream.window += grown
        if not grown or stream.window > WINDOW_MAX:
            self._calls.lose(stream, H2Error.FLOW_CONTROL_ERROR, events)
        else:
            self._calls.send_on(stream)


def _take_push(_: Http2Connection, __: int, ___: int, ____: bytes, _____: list[Event]) -> None:
    raise BrokenError(H2Error.PROTOCOL_ERROR, "clients push nothing")


_TAKES: Final[Mapping[int, Callable[[Http2Connection, int, int, bytes, list[Event]], None]]] = {
    Http2Frame.DATA: Http2Connection._take_data,  # noqa: SLF001  the same module's
    Http2Frame.HEADERS: Http2Connection._take_headers,  # noqa: SLF001
    Http2Frame.CONTINUATION: Http2Connection._take_continuation,  # noqa: SLF001
    Http2Frame.RST_STREAM: Http2Connection._take_reset,  # noqa: SLF001
    Http2Frame.SETTINGS: Http2Connection._take_settings,  # noqa: SLF001
    Http2Frame.PING: Http2Connection._take_ping,  # noqa: SLF001
    Http2Frame.GOAWAY: Http2Connection._take_goaway,  # noqa: SLF001
    Http2Frame.WINDOW_UPDATE: Http2Connection._take_window,  # noqa: SLF001
    Http2Frame.PUSH_PROMISE: _take_push,
}
