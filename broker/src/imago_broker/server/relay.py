"""A client's connection whose requests another broker of the shard answers now.

After a planned change of master its clients still know the former one. Each of their connections
gets a relay: from the next request on, its bytes go to the new master over a connection of its own
to the port of the same kind, and what comes back goes to the client. Nothing is parsed but what is
needed to stay between two frames:

- RocketMQ: the former master may still have something to say (answers to requests that it took,
  news for the members of a group). It speaks between two frames of the new master's. The client's
  last heartbeat is repeated to the new master first, so that it knows whom it serves; its answer
  is kept back.
- MetaQ: the session answers everything that it took before the relay begins, and speaks no more.

The new master's connection is opened by the first request. When it cannot be had, the session goes
on by itself and refuses what a broker that is no master refuses. When it breaks while it is used,
the client's connection is closed: requests that were passed on are answered by nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, cast

from imago_broker.server.relay_streams import FrameBorders, Mouth
from imago_broker.server.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.server.listener import Session

log = logging.getLogger(__name__)

CONNECT_SECONDS_MAX = 2.0
LATE_ANSWERS_SECONDS = 30.0
"""How long the new master's connection stays for answers once the relay has ended: the longest
that a client waits for messages."""


class Address(NamedTuple):
    """Where the new master listens."""

    host: str
    port: int


class _State(Enum):
    IDLE = "no request has come"
    CONNECTING = "the new master's connection is being opened"
    JOINING = "the new master has not answered the repeated heartbeat"
    PIPING = "bytes go both ways"
    ENDED = "the client's requests are not ours any more"


class Relay(asyncio.Protocol):
    """One client's connection: the protocol of its transport while another broker answers."""

    def __init__(
        self,
        to: Address,
        *,
        framed: bool,
        connects: asyncio.Semaphore,
        on_end: Callable[[Relay], None],
    ) -> None:
        """`framed`: RocketMQ's frames; else MetaQ. `connects` bounds how many connect at once."""
        self._to = to
        self._framed = framed
        self._connects = connects
        self._on_end = on_end
        self._state = _State.IDLE
        self._unsent = bytearray()
        self._session: Session | None = None
        self._upstream: Upstream | None = None
        self._task: asyncio.Task[None] | None = None
        self._requests = FrameBorders()
        self._client_slow = False
        self._upstream_slow = False
        self._finishing = False
        self._mouth: Mouth | None = None

    def take(self, session: Session, unread: bytes, *, slow: bool) -> None:
        """Become the protocol of a session's connection; `unread` is what it has not served.

        `slow`: the client does not take its answers at the moment.
        """
        self._session = session
        self._client = session.transport
        self._client_slow = slow
        if isinstance(self._client, Mouth):
            # A relay that ended just now still owes it answers, and there is no third speaker.
            self._client.close()
        if self._client.is_closing():
            self._end()
            return
        self._mouth = Mouth(self._client)
        if self._framed:
            session.transport = cast("asyncio.Transport", self._mouth)
        self._client.set_protocol(self)
        self._unsent += unread
        if self._finishing:
            self._give_back()
        elif self._unsent:
            self._connect()
        else:
            self._steer()

    def finish(self) -> None:
        """Pass nothing more on: what was passed on is answered, then the session goes on.

        A MetaQ connection is closed instead: its client connects anew where it has to.
        """
        self._finishing = True
        if self._session is None or self._state is _State.ENDED:
            return
        if self._state is _State.IDLE:
            self._give_back()
        elif self._state is _State.PIPING:
            if not self._framed:
                assert self._upstream is not None
                self._client.pause_reading()
                self._upstream.write_eof()
            elif self._requests.between:
                self._return(b"")

    # -- the client's side: what the event loop calls ------------------------------------------

    def data_received(self, data: bytes) -> None:
        assert self._session is not None
        self._session.touch()
        if self._state is not _State.PIPING or self._upstream is None:
            self._unsent += data
            if self._state is _State.IDLE:
                self._connect()
            return
        if self._finishing:
            passed = self._requests.to_border(data)
            self._upstream.write(data[:passed])
            if self._requests.between:
                self._return(data[passed:])
            return
        if self._framed:
            self._requests.feed(data)
        self._upstream.write(data)

    def eof_received(self) -> bool:
        if self._framed or self._upstream is None:
            return False
        self._upstream.write_eof()
        return True

    def pause_writing(self) -> None:
        assert self._session is not None
        self._session.pause_writing()
        self._client_slow = True
        self._steer()

    def resume_writing(self) -> None:
        assert self._session is not None
        self._session.resume_writing()
        self._client_slow = False
        self._steer()

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._session is not None
        self.client_gone()
        self._session.connection_lost(exc)

    def client_gone(self) -> None:
        """Nobody reads the answers any more."""
        if self._task is not None:
            self._task.cancel()
        if self._upstream is not None:
            self._upstream.abort()
        self._end()

    # -- the new master's side -----------------------------------------------------------------

    def joined(self) -> None:
        """The new master knows the client: let the requests go."""
        assert self._upstream is not None
        self._state = _State.PIPING
        unsent = bytes(self._unsent)
        self._unsent.clear()
        if self._framed:
            self._requests.feed(unsent)
        self._upstream.write(unsent)
        if self._finishing:
            self.finish()
        if self._state is _State.PIPING:
            self._steer()

    def answer(self, data: bytes) -> None:
        """Pass on what the new master said."""
        assert self._mouth is not None
        self._mouth.say(data)

    def upstream_slow(self, slow: bool) -> None:
        """The new master takes nothing for now, or again."""
        self._upstream_slow = slow
        self._steer()

    def upstream_lost(self, reason: str) -> None:
        """The new master is gone, and with it the answers that it owed."""
        if self._state is _State.JOINING:
            self._unreachable(reason)
            return
        assert self._mouth is not None
        if self._state is _State.ENDED:
            self._restore()
            return
        if self._framed and not self._mouth.borders.between:
            self._client.abort()
        else:
            self._client.close()

    def _connect(self) -> None:
        self._state = _State.CONNECTING
        self._client.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        assert self._session is not None
        beat = self._session.heartbeat if self._framed else None
        upstream = Upstream(self, beat)
        try:
            async with self._connects, asyncio.timeout(CONNECT_SECONDS_MAX):
                await asyncio.get_running_loop().create_connection(lambda: upstream, *self._to)
        except (OSError, TimeoutError) as error:
            self._unreachable(str(error) or "no connection in time")
        finally:
            self._task = None

    def connected(self, upstream: Upstream, *, joining: bool) -> None:
        """The connection to the new master stands."""
        self._upstream = upstream
        self._state = _State.JOINING
        if not joining:
            self.joined()

    def _unreachable(self, reason: str) -> None:
        log.warning("relay_unreachable host=%s port=%d reason=%s", *self._to, reason)
        self._give_back()

    # -- the end -------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Let the session go on with what was not passed on."""
        assert self._session is not None
        if self._state is _State.ENDED:
            return
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None
        unsent = bytes(self._unsent)
        self._restore()
        self._client.set_protocol(self._session)
        self._end()
        self._session.release(unsent)

    def _return(self, unread: bytes) -> None:
        """Let the session serve the client's requests from here on; owed answers still pass."""
        assert self._session is not None
        assert self._upstream is not None
        self._upstream.linger(LATE_ANSWERS_SECONDS)
        self._client.set_protocol(self._session)
        self._state = _State.ENDED
        assert self._mouth is not None
        self._mouth.session_reads = True
        self._session.watch(self.client_gone)
        self._on_end(self)
        self._session.release(unread)

    def _restore(self) -> None:
        """Give the session its own transport back."""
        if self._session is not None and self._mouth is not None:
            self._session.transport = self._client
            self._mouth.close_gate()

    def _end(self) -> None:
        if self._state is not _State.ENDED:
            self._state = _State.ENDED
            self._on_end(self)

    def _steer(self) -> None:
        """Read from each side only while the other takes what comes."""
        if self._upstream is not None:
            self._upstream.read(not self._client_slow)
        if self._state in (_State.IDLE, _State.PIPING) and not self._client.is_closing():
            if self._client_slow or self._upstream_slow or (self._finishing and not self._framed):
                self._client.pause_reading()
            else:
                self._client.resume_reading()
