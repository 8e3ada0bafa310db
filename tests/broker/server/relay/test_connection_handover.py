"""A connection goes from its session to relays and back; what its peer said goes with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.core.budget import InputBudget, OutputBudget
from imago_broker.server.connection_states import ConnectionPhase, WaitReason, WrongEventError
from imago_broker.server.relay.relay_handover import ClientSession
from imago_broker.server.relay.relay_ledgers import TextLedger

if TYPE_CHECKING:
    from imago_broker.server.relay.relay_ledgers import Ledger


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class OneSession(ClientSession):
    """Serves nothing: it only notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(OutputBudget(1 << 20), InputBudget(1 << 20))
        self.unread = b""
        self.owes = False
        self.connection_made(Wire())

    @property
    def settled(self) -> bool:
        return not self.owes

    def touch(self) -> None:
        """Idle times are not looked at here."""

    def unserved(self) -> bytes:
        unread, self.unread = self.unread, b""
        return unread

    def ledger(self) -> Ledger:
        return TextLedger(4096, 4096)

    def returned(self, ledger: Ledger, unread: bytes) -> None:
        del ledger
        self.unread += unread

    def serve_on(self) -> None:
        self.steer_reading()

    def ends(self) -> None:
        self.answered()

    def answered(self) -> None:
        if not self.owes:
            self.transport.close()


class OneRelay:
    """Has the connection until the test says otherwise."""

    def __init__(self) -> None:
        self.took: list[bytes] = []
        self.told_to_finish = self.eof = False

    def take(self, session: ClientSession, ledger: Ledger, unread: bytes, *, slow: bool) -> None:
        del session, ledger, slow
        self.took.append(unread)

    def finish(self, *, patient: bool = False) -> None:
        assert patient
        self.told_to_finish = True

    def eof_received(self) -> bool:
        self.eof = True
        return False

    def steer(self) -> None:
        """Nothing comes."""


@pytest.fixture
def session() -> OneSession:
    return OneSession()


def wire(session: OneSession) -> Wire:
    assert isinstance(session.transport, Wire)
    return session.transport


def test_a_relay_waits_until_what_was_begun_is_answered(session: OneSession) -> None:
    relay = OneRelay()
    session.owes, session.unread = True, b"next"
    assert session.handover.hand_over(relay)
    assert relay.took == []
    assert not wire(session).reading
    session.owes = False
    session.handover.answered()
    assert relay.took == [b"next"]


def test_the_end_of_a_peers_requests_is_passed_from_relay_to_relay(session: OneSession) -> None:
    first, second = OneRelay(), OneRelay()
    session.handover.hand_over(first)
    session.handover.hand_over(second)
    assert first.told_to_finish
    assert second.took == []
    session.handover.take_back(b"unread", eof=True)
    assert second.took == [b"unread"]
    assert second.eof
    assert wire(session).closed


def test_a_port_that_closes_gets_its_connections_back_first(session: OneSession) -> None:
    relay = OneRelay()
    session.handover.hand_over(relay)
    session.handover.end()
    assert relay.told_to_finish
    assert not wire(session).closed
    assert not session.handover.hand_over(OneRelay())
    session.handover.take_back(b"", eof=False)
    assert wire(session).closed


def test_a_port_that_closes_sends_off_a_relay_that_waits(session: OneSession) -> None:
    relay = OneRelay()
    session.owes = True
    session.handover.hand_over(relay)
    session.handover.end()
    assert relay.told_to_finish
    session.owes = False
    session.handover.answered()
    assert wire(session).closed
    assert relay.took == []


def test_reading_begins_again_when_the_last_reason_to_wait_is_gone(session: OneSession) -> None:
    for reason in WaitReason:
        session.handover.wait(reason)
    for reason in WaitReason:
        assert not wire(session).reading
        session.handover.wait_no_more(reason)
    assert wire(session).reading


def test_nothing_is_given_back_that_no_relay_has(session: OneSession) -> None:
    relay = OneRelay()
    session.handover.hand_over(relay)
    session.handover.take_back(b"", eof=False)
    assert session.state.phase is ConnectionPhase.SERVING
    with pytest.raises(WrongEventError, match="TAKE_BACK while SERVING"):
        session.handover.take_back(b"", eof=False)
