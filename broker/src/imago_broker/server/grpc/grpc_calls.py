"""The calls of one connection: from what HTTP/2 has to who serves them, and their answers back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.server.grpc.grpc_stream import GrpcStream
from imago_wire.grpc import headers as heads
from imago_wire.grpc.events import CallCame, CallOpened, Came, Ended
from imago_wire.grpc.scanning.twins import stored_answer
from imago_wire.grpc.streams import UNIMPLEMENTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.processors.grpc.service import GrpcService
    from imago_broker.server.grpc.grpc_stream import StreamSession
    from imago_wire.grpc.connection import Http2Connection
    from imago_wire.grpc.events import Event

STREAM_BYTES = 2048
"""What a call takes before its request has come, beside what its headers say. A table shortens
headers, so that a byte on the wire may be kilobytes here: what they say counts as input."""


class GrpcCalls:
    """Those that are under way."""

    def __init__(
        self,
        service: GrpcService,
        http: Http2Connection,
        session: StreamSession,
        written: Callable[[], None],
    ) -> None:
        """`written`: called when there is something to be sent."""
        self._service, self._http, self._session = service, http, session
        self._written = written
        self._streams: dict[int, GrpcStream] = {}
        self.begun_bytes = 0
        """Of the calls whose request has not come."""
        self.used_ms = self.now_ms = 0
        """When a request came last; now, as the session says once a second."""

    def __len__(self) -> int:
        return len(self._streams)

    def serve(self, events: Sequence[Event]) -> None:
        """Take what has happened."""
        for event in events:
            if isinstance(event, CallCame):
                self._take_call(event)
                continue
            if isinstance(event, CallOpened):
                self._open(event.stream, event.headers)
                continue
            stream = self._streams.get(event.stream)
            if stream is None:
                continue
            if isinstance(event, Came):
                self.begun_bytes -= stream.settled()
                self._take(stream, event.message)
            elif isinstance(event, Ended):
                self._half_closed(stream)
            else:
                self._leave(event.stream)

    def _take_call(self, event: CallCame) -> None:
        """Take a call that came whole."""
        stream = self._begin(event.stream, event.headers)
        if stream is None:
            return
        self._take(stream, event.message)
        if stream.method.lasts and event.stream in self._streams:
            self._half_closed(stream)

    def _take(self, stream: GrpcStream, message: bytes) -> None:
        stream.whole = True
        self.used_ms = self.now_ms
        self._service.serve(stream.method, stream.call, message)

    def _open(self, number: int, headers: Mapping[str, str]) -> None:
        """Begin a call whose request still comes."""
        self._begin(number, headers)
        stream = self._streams.get(number)  # also a refused one, for as long as its answer waits
        if stream is not None:
            stream.cost = STREAM_BYTES + sum(map(len, headers.values()))
            self.begun_bytes += stream.cost

    def _begin(self, number: int, headers: Mapping[str, str]) -> GrpcStream | None:
        service = self._service
        path = headers.get(heads.PATH, "")
        method = service.method(path)
        if method is None or headers.get(heads.METHOD) != "POST":
            self._http.fail(number, UNIMPLEMENTED, f"no method {path[:64]}")
            return None
        stream = GrpcStream(self._session, self, number, method, self.now_ms)
        call = stream.call = service.call(method, stream, headers)
        self._streams[number] = stream
        service.begun(method, call)
        return None if call.answered or not stream.is_open else stream

    def _half_closed(self, stream: GrpcStream) -> None:
        """The peer asks for nothing more: a stream of commands ends then."""
        if not stream.whole:
            self.fail(stream, UNIMPLEMENTED, "the call has no request")
        elif stream.method.lasts:
            self._service.ended(stream.method, stream.call)
            self.send(stream, b"", last=True)

    def _take_out(self, number: int) -> GrpcStream:
        """Return a call that ends here, however it came to: it counts for nothing any more."""
        stream = self._streams.pop(number)
        if stream.cost:
            self.begun_bytes -= stream.settled()
        return stream

    def _leave(self, number: int) -> None:
        stream = self._take_out(number)
        call = stream.call
        stream.gone()
        self._service.ended(stream.method, call)

    def send(self, stream: GrpcStream, messages: bytes, *, last: bool) -> None:
        """Send messages of an answer, framed."""
        if stream.number not in self._streams:
            return
        self._http.send(stream.number, messages, last=last)
        self._look(stream)

    def stored(self, stream: GrpcStream, message_id: bytes, offset: int) -> None:
        """Answer that a message was stored."""
        if stream.number in self._streams:
            self._http.send_whole(stream.number, stored_answer(stream.number, message_id, offset))
            self._look(stream)

    def fail(self, stream: GrpcStream, status: int, text: str) -> None:
        """End a call with a status of gRPC's own."""
        if stream.number in self._streams:
            self._http.fail(stream.number, status, text)
            self._look(stream)

    def _look(self, stream: GrpcStream) -> None:
        """Let a stream go whose answer is on its way; a peer that leaves much unread, too."""
        if not self._http.has(stream.number):
            self._take_out(stream.number)
            call = stream.call if stream.method.lasts and stream.is_open else None
            stream.answered()
            if call is not None:
                self._service.ended(stream.method, call)
        self._written()

    def end_all(self) -> None:
        """The connection is gone."""
        while self._streams:
            self._leave(next(iter(self._streams)))

    def look_all(self) -> None:
        """Let calls go whose answers have left meanwhile."""
        for number in [number for number in self._streams if not self._http.has(number)]:
            self._take_out(number).answered()  # windows had room for the rest of its answer

    def sweep(self, stall_ms: int) -> None:
        """End calls whose request does not come."""
        self.used_ms = self.now_ms
        for number, stream in list(self._streams.items()):
            if not stream.whole and self.now_ms - stream.begun_ms > stall_ms:
                self._http.cancel(number)
                self._leave(number)
