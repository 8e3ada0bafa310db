"""The calls of one connection: what came of each, and what is left of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_wire.grpc import frames
from imago_wire.grpc.events import Came, Ended, Event, Gone
from imago_wire.grpc.frames import END_STREAM, PADDED, H2Error
from imago_wire.grpc.header_blocks import BrokenError
from imago_wire.grpc.windows import AnswerWindows, Http2Stream

if TYPE_CHECKING:
    from imago_wire.grpc.limits import Http2Limits

MESSAGE_HEAD_BYTES: Final = 5
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12


class Http2Streams:
    """All that are under way."""

    def __init__(self, limits: Http2Limits) -> None:
        self.windows = AnswerWindows()
        self.known: dict[int, Http2Stream] = {}
        self.buffered = 0
        """Bytes of messages that are not whole."""
        self.limits = limits

    @property
    def unsent(self) -> int:
        """Bytes of answers for which the peer's windows have no room."""
        return sum(len(part) for stream in self.known.values() for part in stream.unsent)

    def open(self, number: int) -> Http2Stream:
        """Begin one."""
        stream = self.known[number] = Http2Stream(number, self.windows.initial)
        return stream

    def send(self, number: int, messages: bytes, *, last: bool) -> None:
        """Send messages of an answer, framed."""
        stream = self.known.get(number)
        if stream is not None and self.windows.send(stream, messages, last=last):
            self.forget(stream)

    def send_whole(self, number: int, answer: bytes) -> None:
        """Send an answer that was made with its frames, where the windows have room for it."""
        stream = self.known.get(number)
        if stream is not None and self.windows.send_whole(stream, answer):
            self.forget(stream)

    def fail(self, number: int, status: int, text: str) -> None:
        """End a call with a status of gRPC's own."""
        stream = self.known.get(number)
        if stream is not None and self.windows.fail(stream, status, text):
            self.forget(stream)

    def cancel(self, number: int, why: H2Error) -> None:
        """End a call without an answer."""
        stream = self.known.get(number)
        if stream is not None:
            self.forget(stream)
            self.windows.out.append(frames.reset(number, why))

    def lose(self, stream: Http2Stream, why: H2Error, events: list[Event]) -> None:
        """End a call that its peer has spoilt."""
        self.cancel(stream.number, why)
        events.append(Gone(stream.number))

    def send_on(self, stream: Http2Stream) -> None:
        """Send of an answer what there is room for by now."""
        if self.windows.send_on(stream):
            self.forget(stream)

    def send_blocked(self) -> None:
        """Go on with answers for which the connection had no room, for as long as it has some."""
        for number in tuple(self.windows.blocked):
            if self.windows.room <= 0:
                break
            self.send_on(self.known[number])

    def set_initial(self, size: int) -> None:
        """Take over how much each stream may be sent at first, those that are there too."""
        self.windows.set_initial(size, self.known.values())
        for stream in tuple(self.known.values()):
            if stream.unsent:
                self.send_on(stream)

    def take(self, stream: Http2Stream, flags: int, payload: bytes, events: list[Event]) -> None:
        number = stream.number
        stream.received += len(payload)
        if stream.received > self.limits.stream_window_bytes:
            self.lose(stream, H2Error.FLOW_CONTROL_ERROR, events)
            return
        self._add(stream, unpadded(flags, payload), events)
        if number not in self.known:
            return
        if flags & END_STREAM:
            self.half_close(stream, events)
        elif stream.received * 2 >= self.limits.stream_window_bytes:
            self.windows.out.append(frames.window_update(number, stream.received))
            stream.received = 0

    def half_close(self, stream: Http2Stream, events: list[Event]) -> None:
        stream.open = False
        if stream.buffer:
            self.lose(stream, H2Error.PROTOCOL_ERROR, events)  # a message is not whole
        else:
            events.append(Ended(stream.number))

    def forget(self, stream: Http2Stream) -> None:
        del self.known[stream.number]
        self.buffered -= len(stream.buffer)
        stream.buffer.clear()
        self.windows.blocked.pop(stream.number, None)

    def _add(self, stream: Http2Stream, data: bytes, events: list[Event]) -> None:
        """Add to what came in a stream; cut off the messages that are whole."""
        buffer = stream.buffer
        before = len(buffer)
        buffer += data
        at = 0
        while len(buffer) - at >= MESSAGE_HEAD_BYTES:
            size = int.from_bytes(buffer[at + 1 : at + 5], "big")
            if buffer[at] or size > self.limits.message_bytes_max:
                compressed = bool(buffer[at])
                self.buffered -= before
                buffer.clear()
                self._refuse(stream, compressed=compressed, events=events)
                return
            end = at + MESSAGE_HEAD_BYTES + size
            if end > len(buffer):
                break
            events.append(Came(stream.number, bytes(buffer[at + MESSAGE_HEAD_BYTES : end])))
            at = end
        del buffer[:at]
        self.buffered += len(buffer) - before
        if self.buffered > self.limits.buffered_bytes_max:
            self.lose(stream, H2Error.ENHANCE_YOUR_CALM, events)

    def _refuse(self, stream: Http2Stream, *, compressed: bool, events: list[Event]) -> None:
        """End a call whose message is not taken; the peer hears why."""
        limit = self.limits.message_bytes_max
        text = "the message is compressed" if compressed else f"a message above {limit} bytes"
        self.fail(stream.number, UNIMPLEMENTED if compressed else RESOURCE_EXHAUSTED, text)
        self.cancel(stream.number, H2Error.NO_ERROR)
        events.append(Gone(stream.number))


def unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise BrokenError(H2Error.PROTOCOL_ERROR, "more padding than there is")
    return payload[1 : len(payload) - payload[0]]
