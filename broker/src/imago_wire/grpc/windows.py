"""What leaves a connection: frames at once, data of answers as the peer's windows have room."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_wire.grpc import answers, frames
from imago_wire.grpc.frames import WINDOW_DEFAULT, H2Error

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Http2Stream:
    """One call of a connection."""

    number: int
    window: int
    """What may still be sent in it."""
    received: int = 0
    """Of its window, and not given back to the peer yet."""
    buffer: bytearray = field(default_factory=bytearray)
    open: bool = True
    """Whether the peer may send more."""
    answered: bool = False
    """Whether the answer has begun."""
    unsent: list[memoryview] = field(default_factory=list)
    """Of its answer: data that waits for room in the windows."""
    trailers: bytes | None = None
    """What ends the answer, once everything before it is sent."""


class AnswerWindows:
    """The way out. Every method that sends returns whether the call is over with that."""

    def __init__(self) -> None:
        self.out: list[bytes | memoryview] = []
        self.initial = WINDOW_DEFAULT
        """Of streams to come."""
        self.room = WINDOW_DEFAULT
        """Of all streams together."""
        self.blocked: dict[int, None] = {}
        """Streams whose answers wait for room of the connection's."""

    def write(self, data: bytes) -> None:
        """Send a frame."""
        self.out.append(data)

    def taken(self) -> bytes:
        """Return, and forget, what is to be written."""
        out, self.out = self.out, []
        return b"".join(out)

    def send(self, stream: Http2Stream, messages: bytes, *, last: bool) -> bool:
        """Send messages of an answer, framed; `last`: they are the last."""
        if not stream.answered:
            stream.answered = True
            self.out.append(answers.response_headers(stream.number))
        if messages:
            stream.unsent.append(memoryview(messages))
        if last:
            stream.trailers = answers.trailers(stream.number)
        return self.send_on(stream)

    def send_whole(self, stream: Http2Stream, answer: bytes) -> bool:
        """Send an answer that was made with its frames, or what they hold as there is room."""
        size = len(answer) - answers.AROUND_BYTES
        if stream.answered or stream.open or size > min(self.room, stream.window):
            message = answers.held(answer)
            return self.send(stream, answers.framed([message]), last=True)
        self.room -= size
        self.out.append(answer)
        return True

    def fail(self, stream: Http2Stream, status: int, text: str) -> bool:
        """End an answer with a status of gRPC's own."""
        stream.trailers = answers.trailers(stream.number, status, text, only=not stream.answered)
        stream.answered = True
        return self.send_on(stream)

    def send_on(self, stream: Http2Stream) -> bool:
        """Send of an answer what there is room for."""
        unsent = stream.unsent
        while unsent:
            room, part = min(self.room, stream.window), unsent[0]
            if room <= 0:
                self._wait(stream)
                return False
            if len(part) > room:
                unsent[0], part = part[room:], part[:room]
            else:
                del unsent[0]
            size, most = len(part), frames.FRAME_BYTES_MAX
            self.room -= size
            stream.window -= size
            for at in range(0, size, most):
                piece = part[at : at + most]
                self.out += (frames.data_head(stream.number, len(piece)), piece)
        self.blocked.pop(stream.number, None)
        if stream.trailers is None:
            return False
        self.out.append(stream.trailers)
        if stream.open:
            self.out.append(frames.reset(stream.number, H2Error.NO_ERROR))
        return True

    def _wait(self, stream: Http2Stream) -> None:
        """Note who goes on once the connection has room; who has none of its own waits for that."""
        if stream.window > 0:
            self.blocked[stream.number] = None
        else:
            self.blocked.pop(stream.number, None)

    def set_initial(self, size: int, streams: Iterable[Http2Stream]) -> None:
        """Take over how much a stream may be sent at first."""
        moved, self.initial = size - self.initial, size
        for stream in streams:
            stream.window += moved
