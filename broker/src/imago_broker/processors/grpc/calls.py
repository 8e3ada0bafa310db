"""One call of a client: who makes it, until when it waits, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from imago_wire.grpc import headers as heads
from imago_wire.grpc.answers import framed
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import encoded, make
from imago_wire.remoting.peer import language_of, sdk_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_wire.remoting.peer import Language


class CallStream(Protocol):
    """The stream of a connection that carries a call."""

    @property
    def peer(self) -> str:
        """`address:port` of the other side."""
        ...

    @property
    def address(self) -> str:
        """The address alone."""
        ...

    @property
    def born_host(self) -> bytes:
        """The same as records hold it."""
        ...

    @property
    def certificate_user(self) -> str:
        """Whom the other side's certificate names; empty: it has shown none."""
        ...

    @property
    def connection(self) -> object:
        """What all calls of one connection share."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether an answer still reaches the peer."""
        ...

    def send(self, messages: bytes, *, last: bool) -> None:
        """Send messages of the answer, framed."""
        ...

    def stored(self, message_id: bytes, offset: int) -> None:
        """Answer that a message was stored."""
        ...

    def fail(self, status: int, text: str) -> None:
        """End the call with a status of gRPC's own: never for what a client may have meant."""
        ...

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the call is over before its answer was taken."""
        ...

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Take a watcher back."""
        ...

    def throttle(self, milliseconds: float) -> None:
        """Read nothing more of the connection for so long."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class CallError(Exception):
    """The call is refused; the connection stays."""

    def __init__(self, code: SdkCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def status(code: SdkCode, text: str = "") -> Any:
    """Return a `Status`."""
    return make("Status", code=int(code), message=text or code.name)


class Call:
    """One call and its answer."""

    __slots__ = ("answered", "headers", "response", "stream", "user")

    def __init__(self, stream: CallStream, headers: Mapping[str, str], response: str) -> None:
        """`response`: the name of the message that answers it."""
        self.stream = stream
        self.headers = headers
        self.response = response
        self.user = ""
        """Whose call it is, once that was checked; empty: nobody has said."""
        self.answered = False

    @property
    def client_id(self) -> str:
        """The client that makes it; empty: it does not say."""
        return self.headers.get(heads.CLIENT_ID, "").strip()

    @property
    def language(self) -> Language:
        """The client's."""
        return language_of(self.headers.get(heads.LANGUAGE, ""))

    @property
    def version(self) -> int:
        """The client's."""
        return sdk_version(self.headers.get(heads.CLIENT_VERSION, ""))

    @property
    def key(self) -> tuple[str, str]:
        """What tells clients apart: an id alone may be somebody else's, too."""
        return self.user, self.client_id

    def timeout_ms(self) -> int | None:
        """How long the caller waits, from when it asked; None: for ever."""
        return heads.timeout_ms(self.headers)

    def answer(self, **fields: Any) -> None:
        """Answer with a message; without a status it went well."""
        fields.setdefault("status", status(SdkCode.OK))
        self.send([make(self.response, **fields)])

    def send(self, messages: Sequence[Any]) -> None:
        """Answer with these messages, once."""
        self.send_framed(framed([encoded(message) for message in messages]))

    def send_framed(self, messages: bytes) -> None:
        """Answer with messages that are as they are sent, once."""
        if not self.answered:
            self.answered = True
            self.stream.send(messages, last=True)

    def stored(self, message_id: bytes, offset: int) -> None:
        """Answer that a message was stored, as `answer` would."""
        if not self.answered:
            self.answered = True
            self.stream.stored(message_id, offset)

    def refuse(self, error: CallError) -> None:
        """Answer with a status alone."""
        self.answer(status=status(error.code, str(error)))

    def send_status(self, error: CallError) -> None:
        """End a stream of answers with a status."""
        self.send([make(self.response, status=status(error.code, str(error)))])
