"""Calls become requests of the remoting protocol, so that all rights, limits and services of those
are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.rocketmq.exchange import Exchange
from imago_broker.service.groups.channel import Channel
from imago_wire.grpc.codes import SdkCode, of_remoting
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.peer import OWN_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.processors.grpc.calls import Call, CallStream
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.service.groups.channel import Reply


class AskedResult(NamedTuple):
    """What became of a request."""

    code: int
    text: str
    ext: Mapping[str, str]
    body: bytes
    denied: bool
    """Whether its user may not, or is not known."""

    @property
    def done(self) -> bool:
        """Whether it was done."""
        return self.code == ResponseCode.SUCCESS

    def error(self) -> CallError:
        """Return what says why it was not done."""
        code = of_remoting(self.code)
        if code is SdkCode.UNAUTHORIZED and not self.denied:
            code = SdkCode.FORBIDDEN
        return CallError(code, self.text or code.name)


class CallChannel:
    """A call as processors see a connection. Equal are those of one connection."""

    transaction_owner = ""

    def __init__(self, stream: CallStream, user: str, done: Callable[[Reply], None]) -> None:
        self._stream, self._done = stream, done
        self.peer, self.address, self.born_host = stream.peer, stream.address, stream.born_host
        self.certificate_user = user

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallChannel) and self._connection is other._connection

    def __hash__(self) -> int:
        return id(self._connection)

    @property
    def _connection(self) -> object:
        return self._stream.connection

    @property
    def is_open(self) -> bool:
        """Whether an answer still reaches the peer."""
        return self._stream.is_open

    def reply(self, request: RemotingCommand, reply: Reply) -> None:
        """Hand the answer over."""
        del request
        self._done(reply)

    def notify(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Drop it: nothing is said in a call but its answer."""

    def call(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
        done: Callable[[RemotingCommand | None], None],
    ) -> None:
        """Ask nothing."""
        del code, ext, body, timeout_ms
        done(None)

    def hold_back(self) -> None:
        """Go on with other calls: they have no order among each other."""

    def go_on(self) -> None:
        """Nothing had to wait."""

    def throttle(self, milliseconds: float) -> None:
        """Read nothing more of the connection for so long."""
        self._stream.throttle(milliseconds)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call it when the call is over before its answer."""
        self._stream.watch(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Take it back."""
        self._stream.unwatch(watcher)

    def close(self) -> None:
        """Close the whole connection."""
        self._stream.close()


class ExpectingChannel(Channel, Protocol):
    """A channel over which a client is reached, and over which no answer to a call goes."""

    def expect(self, opaque: int, done: Callable[[Reply], None]) -> None:
        """Have an answer handed over."""
        ...


class TableAsker:
    """Asks the table of a broker's requests."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._opaque = 0

    def ask(
        self,
        call: Call,
        code: int,
        ext: Mapping[str, str],
        done: Callable[[AskedResult], None],
        *,
        body: bytes = b"",
        channel: ExpectingChannel | None = None,
    ) -> None:
        """Have a request served; `done` gets what became of it, now or later.

        `channel`: over which the client is reached from now on; None: this call's.
        """

        def replied(reply: Reply) -> None:
            parts = reply.body
            whole = parts if isinstance(parts, bytes) else b"".join(parts)
            done(
                AskedResult(reply.code, reply.remark or "", reply.ext or {}, whole, exchange.denied)
            )

        self._opaque = opaque = self._opaque + 1 & 0x7FFF_FFFF
        command = RemotingCommand(
            code=int(code),
            opaque=opaque,
            version=OWN_VERSION if channel is None else call.version,
            language=call.language,
            ext=dict(ext),
            body=body,
        )
        if channel is None:
            exchange = Exchange(CallChannel(call.stream, call.user, replied), command)
        else:
            channel.expect(opaque, replied)
            exchange = Exchange(channel, command)
        self._table.dispatch(exchange)
