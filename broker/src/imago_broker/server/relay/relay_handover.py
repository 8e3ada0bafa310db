"""A connection that its session can leave to a relay and take back: the same for both protocols."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from imago_broker.server.connection_states import (
    RELAYED,
    ConnectionEvent,
    ConnectionPhase,
    ConnectionState,
    WaitReason,
)
from imago_broker.server.session import Session
from imago_broker.server.unfinished import Unfinished
from imago_broker.server.write_backlog import WriteBacklog

if TYPE_CHECKING:
    from imago_broker.core.budget import InputBudget, OutputBudget
    from imago_broker.server.relay.relay_ledgers import Ledger


class Takeover(Protocol):
    """A relay, as a session that it has a connection from uses it."""

    def take(self, session: ClientSession, ledger: Ledger, unread: bytes, *, slow: bool) -> None:
        """Become the protocol of the connection."""

    def finish(self, *, patient: bool = False) -> None:
        """Give the connection back."""

    def eof_received(self) -> bool:
        """Note that the client asks for nothing more; False: close its connection."""
        ...

    def steer(self) -> None:
        """Read from each side only while the other takes what comes."""


class ClientSession(Session, ABC):
    """A session whose connection may be relayed. Derived classes say how theirs is served."""

    unfinished: Unfinished
    """The account of what has come of a command that is not whole."""

    def __init__(self, budget: OutputBudget, input_budget: InputBudget) -> None:
        self.handover = ConnectionHandover(self)
        self.state = self.handover.state
        self.write_backlog = WriteBacklog(budget)
        self.unfinished = Unfinished(input_budget, self)

    def pause_writing(self) -> None:
        """Serve nothing more of a peer that does not read its answers."""
        self.write_backlog.count(self.transport.get_write_buffer_size())
        self.handover.wait(WaitReason.PEER)

    def resume_writing(self) -> None:
        """Go on with what was left, then read again."""
        self.write_backlog.count(0)
        self.handover.wait_no_more(WaitReason.PEER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what waits: the answers have no reader any more."""
        self.handover.lost()
        self.write_backlog.count(0)
        self.unfinished.end()
        super().connection_lost(exc)

    def steer_reading(self) -> None:
        """Read, or do not, as everything says that has a say in it."""
        if self.handover.steer_relay() or self.transport.is_closing():
            return
        if self.state.reads and not self.unfinished.waits:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    @abstractmethod
    def touch(self) -> None:
        """Note that the connection is in use."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether everything that was begun is answered, so that a relay may begin."""

    @abstractmethod
    def unserved(self) -> bytes:
        """Return, and forget, what was read and not served."""

    @abstractmethod
    def ledger(self) -> Ledger:
        """Return an empty account for a relay."""

    @abstractmethod
    def returned(self, ledger: Ledger, unread: bytes) -> None:
        """Take over what a relay knows of the peer and has read; serve nothing of it yet."""

    @abstractmethod
    def serve_on(self) -> None:
        """Serve what had to wait, as far as `state` lets it; then steer the reading."""

    @abstractmethod
    def ends(self) -> None:
        """Nothing more is to be read: close once everything is answered."""

    def answered(self) -> None:
        """Something was answered while the connection ends."""


class ConnectionHandover:
    """Holds one connection, leaves it to relays, and takes it back."""

    __slots__ = ("_ledger", "_relay", "_session", "state")

    def __init__(self, session: ClientSession) -> None:
        self.state = ConnectionState()
        self._session: ClientSession | None = session
        self._relay: Takeover | None = None
        """Who has the connection; while it leaves or changes, who gets it next."""
        self._ledger: Ledger | None = None

    def wait(self, reason: WaitReason) -> None:
        """Read and serve nothing, for this reason too; answers still go out."""
        if self._session is not None and not self.state.closed:
            self.state.wait(reason)
            self._session.steer_reading()

    def wait_no_more(self, reason: WaitReason) -> None:
        """Take a reason back: serve what had to wait, or leave it to the relay that waits."""
        self.state.wait_no_more(reason)
        if self._session is None or self.state.closed:
            return
        if self.state.phase is ConnectionPhase.LEAVING:
            self.leave()
        else:
            self._session.serve_on()

    def throttle(self, milliseconds: float) -> None:
        """Read and serve nothing for so long; while that lasts already, nothing more."""
        if self._session is None or self.state.closed or self.state.waits & WaitReason.QUOTA:
            return
        self.wait(WaitReason.QUOTA)
        loop = asyncio.get_running_loop()
        loop.call_later(milliseconds / 1000, self.wait_no_more, WaitReason.QUOTA)

    def hand_over(self, relay: Takeover) -> bool:
        """Leave the connection to a relay at the next border between two requests.

        Where one has it already, as soon as that has ended. False: the connection is at its end.
        """
        session = self._session
        if session is None or not self.state.may(ConnectionEvent.HAND_OVER):
            return False
        former, self._relay = self._relay, relay
        self.state.happened(ConnectionEvent.HAND_OVER)
        session.steer_reading()
        if former is not None:
            former.finish(patient=True)  # may give the connection back at once
        self.leave()
        self.state.wait_no_more(WaitReason.TAKEOVER)
        return True

    def leave(self) -> None:
        """Leave the connection to the relay that waits for it, once the session may."""
        session, relay = self._session, self._relay
        if (
            self.state.phase is not ConnectionPhase.LEAVING
            or session is None
            or not session.settled
        ):
            return
        assert relay is not None, "it leaves for a relay"
        unread = session.unserved()
        ledger = self._ledger = session.ledger()
        self.state.happened(ConnectionEvent.LEAVE)
        relay.take(session, ledger, unread, slow=bool(self.state.waits & WaitReason.PEER))

    def answered(self) -> None:
        """Something was answered: what waits for that may be able to happen."""
        if self.state.phase is ConnectionPhase.ENDING and self._session is not None:
            self._session.answered()
        else:
            self.leave()

    def take_back(self, unread: bytes, *, eof: bool) -> None:
        """Go on where a relay ends, with what it has read and not passed on.

        `eof`: the client has said that it asks for nothing more.
        """
        session, ledger = self._session, self._ledger
        phase = self.state.happened(ConnectionEvent.TAKE_BACK)
        assert session is not None, "a connection that is lost is not given back"
        assert ledger is not None, "a relay has had the connection"
        self._ledger = None
        session.returned(ledger, unread)
        if phase is ConnectionPhase.LEAVING:
            self.leave()
        else:
            self._relay = None
            if phase is ConnectionPhase.SERVING:
                session.serve_on()
            else:
                session.ends()
        if eof:
            self.eof()

    def eof(self) -> None:
        """The client asks for nothing more."""
        session, relay = self._session, self._relay
        if self.state.phase in RELAYED and relay is not None and session is not None:
            if not relay.eof_received():
                session.transport.close()
        elif self.state.phase is ConnectionPhase.SERVING:
            self.end()

    def end(self) -> None:
        """Read nothing more, answer what was taken, then close."""
        session, relay = self._session, self._relay
        if session is None:
            return
        before = self.state.phase
        phase = self.state.happened(ConnectionEvent.END)
        if relay is not None and before is not phase:
            if phase is ConnectionPhase.ENDING:
                self._relay = None
            relay.finish(patient=True)
        if phase is ConnectionPhase.ENDING and before is not phase:
            session.ends()

    def steer_relay(self) -> bool:
        """Have the relay read, or not, if one has the connection; False: none has it."""
        if self.state.phase not in RELAYED:
            return False
        if self._relay is not None and self.state.phase is ConnectionPhase.RELAYED:
            self._relay.steer()
        return True

    def close(self) -> None:
        """Note that the connection is closed, or about to be."""
        self.state.happened(ConnectionEvent.CLOSE)

    def lost(self) -> None:
        """Let go of the session: together they would stay until a collection."""
        self.state.happened(ConnectionEvent.CLOSE)
        self._session = self._relay = self._ledger = None
