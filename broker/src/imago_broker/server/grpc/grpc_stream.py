"""One stream of a connection, as the calls behind it see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.grpc.service import Method


class StreamSession(Protocol):
    """The connection, as its streams use it."""

    peer: str
    shown_address: str
    born_host: bytes
    certificate_user: str

    def throttle(self, milliseconds: float) -> None:
        """Read nothing more for so long."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class StreamAnswers(Protocol):
    """What sends answers, as streams use it."""

    def send(self, stream: GrpcStream, messages: bytes, *, last: bool) -> None:
        """Send messages of an answer, framed."""
        ...

    def stored(self, stream: GrpcStream, message_id: bytes, offset: int) -> None:
        """Answer that a message was stored."""
        ...

    def fail(self, stream: GrpcStream, status: int, text: str) -> None:
        """End a call with a status of gRPC's own."""
        ...


class GrpcStream:
    """The way back of one call, for as long as its peer waits for it."""

    __slots__ = (
        "_answers",
        "_session",
        "_watchers",
        "begun_ms",
        "call",
        "cost",
        "method",
        "number",
        "whole",
    )

    def __init__(
        self,
        session: StreamSession,
        answers: StreamAnswers,
        number: int,
        method: Method,
        now_ms: int,
    ) -> None:
        self._session: StreamSession | None = session
        self._answers = answers
        self._watchers: dict[Callable[[], None], None] = {}
        self.number, self.method = number, method
        self.call: Call
        """Set at once, before anybody sees the stream; nothing once it is over: each knows the
        other, and together they would stay until a collection."""
        self.begun_ms = now_ms
        self.cost = 0
        """Bytes that its session counts for it."""
        self.whole = False
        """Whether a whole request has come."""

    @property
    def connection(self) -> object:
        """What all calls of one connection share; a call that is over stands for itself."""
        return self._session or self

    @property
    def peer(self) -> str:
        """`address:port` of the other side."""
        return self._session.peer if self._session is not None else "gone"

    @property
    def address(self) -> str:
        """The address alone."""
        return self._session.shown_address if self._session is not None else ""

    @property
    def born_host(self) -> bytes:
        """The same as records hold it."""
        return self._session.born_host if self._session is not None else bytes(8)

    @property
    def certificate_user(self) -> str:
        """Whom the other side's certificate names."""
        return self._session.certificate_user if self._session is not None else ""

    @property
    def is_open(self) -> bool:
        """Whether an answer still reaches the peer."""
        return self._session is not None

    def settled(self) -> int:
        """Return what is counted for it, and no more: its request has come, or is not awaited."""
        cost, self.cost = self.cost, 0
        return cost

    def send(self, messages: bytes, *, last: bool) -> None:
        """Send messages of the answer, framed."""
        if self._session is not None:
            self._answers.send(self, messages, last=last)

    def stored(self, message_id: bytes, offset: int) -> None:
        """Answer that a message was stored."""
        if self._session is not None:
            self._answers.stored(self, message_id, offset)

    def fail(self, status: int, text: str) -> None:
        """End the call with a status of gRPC's own."""
        if self._session is not None:
            self._answers.fail(self, status, text)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the call is over before its answer was taken."""
        if self._session is not None:
            self._watchers[watcher] = None

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Take a watcher back."""
        self._watchers.pop(watcher, None)

    def throttle(self, milliseconds: float) -> None:
        """Read nothing more of the connection for so long."""
        if self._session is not None:
            self._session.throttle(milliseconds)

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()

    def answered(self) -> None:
        """The answer is written: nobody waits for the call's end any more."""
        self._session = None
        del self._answers, self.call
        self._watchers.clear()

    def gone(self) -> None:
        """The call is over before that."""
        self._session = None
        del self._answers, self.call
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher()
