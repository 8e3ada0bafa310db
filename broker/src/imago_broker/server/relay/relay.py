"""A client's connection whose requests another broker of the shard answers now.

After a planned change of master its clients still know the former one. Each of their connections
gets a relay: from the next request on, its requests go to the new master over a connection of its
own to the port of the same kind, and the answers go to the client. Only whole requests and whole
answers are passed on (`relay_ledgers`), so the session that the connection belongs to may go on
speaking to the client: RocketMQ's has answers to requests that it took, and news for the members of
a group. MetaQ's has answered everything that it took before the relay begins.

The new master's connection is opened by the first request, and begins with a RocketMQ client's last
heartbeat, so that the new master knows whom it serves. When it cannot be had, the session goes on
by itself and refuses what a broker that is no master refuses. When it breaks, whatever was passed
on and is not answered is refused: nobody else will answer it.

At the end the session gets its connection back. A patient end, that of a broker which is the master
again, waits until what was passed on is answered, so that the order of a client's requests is kept.
Else answers that are owed (to polls that are held, above all) come while the session serves.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.server.relay.upstream import Upstream
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from imago_broker.server.relay.relay_handover import ClientSession
    from imago_broker.server.relay.relay_ledgers import Ledger

log = logging.getLogger(__name__)

CONNECT_SECONDS_MAX = 1.0
JOIN_SECONDS_MAX = 1.0
"""How long the new master may take to answer the repeated heartbeat."""
PATIENCE_SECONDS_MAX = 1.0
"""How long a patient end waits for answers that are owed."""
LATE_ANSWERS_SECONDS = 30.0
"""How long the new master's connection stays for answers once the relay has ended: the longest
that a client waits for messages."""


class Address(NamedTuple):
    """Where the new master listens."""

    host: str
    port: int


class _State(Enum):
    WAITING = "the session has something to finish first"
    IDLE = "no request has come"
    CONNECTING = "the new master's connection is being opened"
    JOINING = "the new master has not answered the repeated heartbeat"
    PIPING = "requests and answers are passed on"
    ENDING = "answers are owed, and the client is not read until they have come"
    ENDED = "the session has its connection back"


_FOLLOWING: dict[_State, set[_State]] = {
    _State.WAITING: {_State.IDLE, _State.ENDED},
    _State.IDLE: {_State.CONNECTING, _State.ENDED},
    _State.CONNECTING: {_State.JOINING, _State.ENDED},
    _State.JOINING: {_State.PIPING, _State.ENDED},
    _State.PIPING: {_State.IDLE, _State.ENDING, _State.ENDED},
    _State.ENDING: {_State.ENDED},
    _State.ENDED: set(),
}
"""What may follow each state."""


class Relay(asyncio.Protocol):
    """One client's connection: the protocol of its transport while another broker answers."""

    def __init__(
        self,
        to: Address,
        *,
        connects: asyncio.Semaphore,
        on_end: Callable[[Relay], None],
        tls: ssl.SSLContext | None = None,
        introduce: Callable[[ClientSession], bytes] | None = None,
    ) -> None:
        """`connects` bounds how many connect at once; `tls`: what the new master is trusted by.

        `introduce` makes what the new master learns of the client; None: it learns nothing.
        """
        self._to = to
        self._connects = connects
        self._tls, self._introduce = tls, introduce
        self._on_end = on_end
        self._state = _State.WAITING
        self._unsent = b""
        """What the client said and the ledger has not seen."""
        self._upstream: Upstream | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._client_slow = False
        self._upstream_slow = False
        self._eof = False
        """Whether the client has said that it asks for nothing more."""

    @property
    def _last(self) -> bool:
        return self._eof or self._ledger.last

    def take(self, session: ClientSession, ledger: Ledger, unread: bytes, *, slow: bool) -> None:
        """Become the protocol of a session's connection; `unread` is what it has not served.

        `slow`: the client does not take its answers at the moment.
        """
        self._session, self._ledger = session, ledger
        self._client = session.transport
        self._client_slow = slow
        self._unsent = unread
        if self._client.is_closing():
            self._end()
        elif self._state is _State.ENDED:
            self._give_back()
        else:
            self._become(_State.IDLE)
            self._client.set_protocol(self)
            if unread:
                self._connect()
            self.steer()

    def finish(self, *, patient: bool = False) -> None:
        """Pass nothing more on, and give the session its connection back.

        At once, unless `patient`: then when what was passed on is answered, or that takes too long.
        """
        if self._state is _State.WAITING:
            self._end()
        elif patient and self._state is _State.PIPING and self._ledger.pressing:
            self._become(_State.ENDING)
            self.steer()
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(PATIENCE_SECONDS_MAX, self._give_back)
        elif self._state is not _State.ENDED and not (patient and self._state is _State.ENDING):
            self._give_back()

    # -- the client's side: what the event loop calls ------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._session.touch()
        if self._state is _State.PIPING:
            self._pass_on(data)
        else:
            self._unsent += data
            self._session.unfinished.grown(len(self._unsent))
            if self._state is _State.IDLE:
                self._connect()
            else:
                # The loop begins to read a new connection even where that was paused.
                self.steer()

    def eof_received(self) -> bool:
        self._eof = True
        owed = self._ledger.owing or bool(self._unsent)
        return owed and self._ledger.answers_half_closed and not self._session.secure

    def pause_writing(self) -> None:
        self._client_slow = True
        self._session.pause_writing()
        self.steer()

    def resume_writing(self) -> None:
        self._client_slow = False
        self._session.resume_writing()
        self.steer()

    def connection_lost(self, exc: Exception | None) -> None:
        self.client_gone()
        self._session.connection_lost(exc)

    def client_gone(self) -> None:
        """End it: nobody reads the answers any more."""
        self._hang_up()
        self._end()

    # -- the new master's side -----------------------------------------------------------------

    def connected(self, upstream: Upstream) -> None:
        """The connection to the new master stands."""
        self._become(_State.JOINING)
        upstream.write(self._ledger.greeting())
        if self._ledger.greeted:
            self._joined()
        else:
            upstream.expect(JOIN_SECONDS_MAX, "answer to a heartbeat in time")

    def answer(self, upstream: Upstream, data: bytes) -> None:
        """Pass on what the new master said."""
        try:
            told = self._ledger.answers(data)
        except ProtocolError as error:
            upstream.close()
            self.upstream_lost(upstream, f"bad answer: {error}")
            return
        self._send(told)
        if self._state is _State.JOINING and self._ledger.greeted:
            self._joined()
        else:
            self._look()

    def upstream_slow(self, slow: bool) -> None:
        """The new master takes nothing for now, or again."""
        self._upstream_slow = slow
        self.steer()

    def upstream_lost(self, upstream: Upstream, reason: str) -> None:
        """The new master is gone, and with it the answers that it owed."""
        if self._upstream is not upstream:
            return
        self._upstream, self._upstream_slow = None, False
        if self._state in (_State.CONNECTING, _State.JOINING):
            log.warning("relay_unreachable host=%s port=%d reason=%s", *self._to, reason)
            self._give_back()
            return
        if self._ledger.owing:
            log.info("relay_broken host=%s port=%d reason=%s", *self._to, reason)
        self._send(self._ledger.refusals())
        if self._state is _State.PIPING:
            self._begin_again()
        else:
            self._look()

    def _begin_again(self) -> None:
        """Let the next request open another connection."""
        self._become(_State.IDLE)
        self._unsent = self._ledger.unread()
        if self._last:
            self._client.close()
        else:
            self.steer()

    def _joined(self) -> None:
        """Let the requests go: the new master knows the client."""
        assert self._upstream is not None
        self._upstream.calm()
        self._become(_State.PIPING)
        unsent, self._unsent = self._unsent, b""
        self.steer()
        self._pass_on(unsent)

    def _pass_on(self, data: bytes) -> None:
        assert self._upstream is not None
        passed = self._ledger.requests(data)
        self._upstream.write(passed)
        if passed:
            self._session.unfinished.left(self._ledger.unread_size)
        elif data:
            self._session.unfinished.grown(self._ledger.unread_size)
        if self._last:
            self.steer()
            self._look()

    def _send(self, told: bytes) -> None:
        if told and not self._client.is_closing():
            self._client.write(told)

    def _look(self) -> None:
        """See whether the answers have come that something waits for."""
        if self._state is _State.ENDING:
            if not self._ledger.pressing:
                self._give_back()
        elif not self._ledger.owing:
            if self._state is _State.ENDED:
                self._hang_up()
            elif self._last:
                self._client.close()

    def _connect(self) -> None:
        self._become(_State.CONNECTING)
        self.steer()
        self._upstream = Upstream(self)
        said = self._introduce(self._session) if self._introduce is not None else b""
        self._upstream.open(*self._to, self._connects, CONNECT_SECONDS_MAX, self._tls, said)

    # -- the end -------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Let the session go on with what was not passed on; owed answers still pass."""
        if self._ledger.owing and self._upstream is not None:
            self._upstream.read(True)
            self._upstream.expect(LATE_ANSWERS_SECONDS, "answer in time")
            self._session.watchers.add(self.client_gone)
        else:
            self._hang_up()
        self._end()
        unread = self._ledger.unread() + self._unsent
        if not self._client.is_closing():
            self._client.set_protocol(self._session)
            self._session.handover.take_back(unread, eof=self._eof)

    def _hang_up(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None

    def _end(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._state is not _State.ENDED:
            self._become(_State.ENDED)
            self._on_end(self)

    def _become(self, state: _State) -> None:
        assert state in _FOLLOWING[self._state], f"{state} after {self._state}"
        self._state = state

    def steer(self) -> None:
        """Read from each side only while the other takes what comes."""
        if self._state is _State.ENDED or self._client.is_closing():
            return
        if self._upstream is not None:
            self._upstream.read(not self._client_slow)
        passing = self._state in (_State.IDLE, _State.PIPING)
        slow = self._client_slow or self._upstream_slow or self._session.unfinished.waits
        if passing and not (slow or self._last):
            self._client.resume_reading()
        else:
            self._client.pause_reading()
