"""The client ports while the mastership of the shard moves from this broker to another.

In order: `hold_puts` (requests wait in their sessions while the next master catches up), then
either `relay_to` (it is to lead: once it says that it does, connections are relayed to it for some
time) or `release` (it does not, or this broker is the master again). No request waits for longer
than its client would: then it is served as this broker can, and what follows is relayed later.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from imago_broker.model.access.users import Introduced
from imago_broker.server.connection_states import WaitReason
from imago_broker.server.introductions import target_of
from imago_broker.server.relay.probe import port_to_ask, until_it_leads
from imago_broker.server.relay.relay import Address, Relay
from imago_broker.server.relay.relay_handover import ClientSession

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.server.introductions import Introductions
    from imago_broker.server.listener import Listener
    from imago_broker.server.session import Session
    from imago_broker.server.tls.tls_certificates import Certificates

log = logging.getLogger(__name__)

HOLD_SECONDS_MAX = 2.0
"""Requests that have waited so long are served, and refused where that is what is left: the least
that clients wait for an answer by their defaults is 3 s."""
TAKEOVER_SECONDS_MAX = 10.0
"""How long the next master may take to lead, from the end of this one's mastership on."""
CONNECTS_MAX = 256
"""Connections to the new master that are being opened at a time."""


@dataclass(frozen=True, slots=True)
class Door:
    """One client port, and which port of another broker speaks the same."""

    listener: Listener
    port_of: Callable[[BrokerRecord], int]


class _Phase(Enum):
    SERVING = "serving"
    CATCH_UP = "the next master is not elected"
    TAKEOVER = "the next master does not lead yet"
    RELAYING = "relaying"


class ClientPorts:
    """All client ports of a broker. Everything happens in the event loop's thread."""

    def __init__(
        self,
        doors: Sequence[Door],
        *,
        loop: asyncio.AbstractEventLoop,
        append_now: Callable[[], None],
        answer_held: Callable[[], None],
        certificates: Certificates | None = None,
        introductions: Introductions | None = None,
    ) -> None:
        """`append_now`: append the puts that were taken. `answer_held`: end all long polls.

        `certificates`: by which other brokers are trusted, where connections have TLS.
        `introductions`: what tells them whose requests are passed on, with access control.
        """
        self._doors = doors
        self._loop = loop
        self._append_now = append_now
        self._answer_held = answer_held
        self._certificates = certificates
        self._introductions = introductions
        self._phase = _Phase.SERVING
        self._to: BrokerRecord | None = None
        self._holding = False
        self._hold_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        """Set while nothing is relayed."""
        self._idle.set()
        self._takeover: asyncio.Task[None] | None = None
        self._relays: set[Relay] = set()
        self._connects = asyncio.Semaphore(CONNECTS_MAX)
        for door in doors:
            door.listener.on_open.append(partial(self._opened, door))

    @property
    def relaying(self) -> bool:
        """Whether new requests go to another broker, or will once that leads."""
        return self._phase in (_Phase.TAKEOVER, _Phase.RELAYING)

    @property
    def waiting(self) -> bool:
        """Whether new requests wait."""
        return self._holding

    @property
    def relays(self) -> int:
        """Connections that are left to a relay, or about to be."""
        waiting = self._phase is _Phase.TAKEOVER
        return len(self._sessions()) if waiting else len(self._relays)

    def hold_puts(self) -> None:
        """Append what was taken; have every further request wait in its session.

        Nobody waits longer than `HOLD_SECONDS_MAX`. Calls while requests wait already do nothing.
        """
        if self._phase is _Phase.CATCH_UP:
            return
        self.release()
        self._append_now()
        self._phase = _Phase.CATCH_UP
        self._hold()

    def relay_to(self, record: BrokerRecord, linger_ms: int) -> None:
        """Pass every request on to this broker once it leads, for so long from now on.

        Requests that were taken are answered first; held polls end. A port that the other broker
        does not have goes on by itself, as all do when it cannot be reached or does not lead in
        time.
        """
        waits = self._phase is _Phase.CATCH_UP
        if not waits:
            self.release()
        self._phase = _Phase.TAKEOVER
        self._idle.clear()
        self._to = record
        self._answer_held()
        if not waits:
            self._hold()
        self._linger_timer = self._loop.call_later(linger_ms / 1000, self._linger_over)
        self._takeover = self._loop.create_task(self._relay_when_it_leads(record))

    async def _relay_when_it_leads(self, record: BrokerRecord) -> None:
        try:
            async with asyncio.timeout(TAKEOVER_SECONDS_MAX):
                tls, plain_too = self._probing_tls(record)
                await until_it_leads(
                    record,
                    tls,
                    plain_too=plain_too,
                    introduction=lambda: self._own_introduction(record),
                )
        except (OSError, TimeoutError) as error:
            log.warning(
                "relay_impossible to=%s reason=%s", record.host, str(error) or "it does not lead"
            )
            self._takeover = None
            self.release()
            return
        self._takeover = None
        self._phase = _Phase.RELAYING
        for door, session in self._sessions():
            self._relay(door, session)
        self._unhold()
        log.info("relay_started to=%s connections=%d", record.host, len(self._relays))

    def release(self) -> None:
        """Serve requests here again, as the master or as what else this broker is now.

        What was passed on is answered first, if that is soon: the order of requests is kept.
        """
        self._end(patient=True)

    def _linger_over(self) -> None:
        self._end(patient=False)

    def _end(self, *, patient: bool) -> None:
        phase, self._phase = self._phase, _Phase.SERVING
        self._idle.set()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
        if self._takeover is not None:
            self._takeover.cancel()
            self._takeover = None
        if phase is _Phase.RELAYING:
            log.info("relay_ended connections=%d", len(self._relays))
            for relay in tuple(self._relays):
                relay.finish(patient=patient)
        self._unhold()

    async def until_relayed(self) -> None:
        """Wait until the relaying is over."""
        await self._idle.wait()

    def _opened(self, door: Door, session: Session) -> None:
        if not isinstance(session, ClientSession) or session.transport.is_closing():
            return
        if self._holding:
            session.handover.wait(WaitReason.TAKEOVER)
        elif self._phase is _Phase.RELAYING:
            self._relay(door, session)

    def _relay(self, door: Door, session: ClientSession) -> None:
        assert self._to is not None
        port = door.port_of(self._to)
        places = door.listener.places
        if not port or not places.take_own():  # its own connection needs one
            return

        def ended(relay: Relay) -> None:
            if relay in self._relays:
                self._relays.remove(relay)
                places.leave_own()

        tls = self._certificates.contexts.client if self._certificates and session.secure else None
        to = Address(self._to.host, port)
        relay = Relay(
            to, connects=self._connects, on_end=ended, tls=tls, introduce=self._introducing(to)
        )
        self._relays.add(relay)
        if not session.handover.hand_over(relay):
            ended(relay)

    def _introducing(self, to: Address) -> Callable[[Session], bytes] | None:
        made = self._introductions
        if made is None:
            return None

        def introduce(session: Session) -> bytes:
            host, port = session.peer_name[:2]
            return made.written(Introduced(session.certificate_user, host, port), target_of(*to))

        return introduce

    def _own_introduction(self, record: BrokerRecord) -> bytes:
        """Return what says that a broker of the cluster asks."""
        if self._introductions is None:
            return b""
        return self._introductions.of_member(target_of(record.host, port_to_ask(record)))

    def _probing_tls(self, record: BrokerRecord) -> tuple[ssl.SSLContext | None, bool]:
        """Return what the next master is trusted by, and whether it may be asked without.

        Where this broker serves without TLS, too, the other one may, or not: a shard changes over
        one member after the other.
        """
        asked = [each for each in self._doors if each.port_of(record) == port_to_ask(record)]
        doors = [each.listener.door for each in asked]
        if self._certificates is None or any(door is None for door in doors):
            return None, False
        plain_too = any(door is not None and door.plain_too for door in doors)
        return self._certificates.contexts.client, plain_too

    def _hold(self) -> None:
        self._holding = True
        for _, session in self._sessions():
            session.handover.wait(WaitReason.TAKEOVER)
        self._hold_timer = self._loop.call_later(HOLD_SECONDS_MAX, self._held_too_long)

    def _unhold(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        if self._holding:
            self._holding = False
            for _, session in self._sessions():
                session.handover.wait_no_more(WaitReason.TAKEOVER)

    def _held_too_long(self) -> None:
        log.warning("held_too_long seconds=%g", HOLD_SECONDS_MAX)
        self._unhold()

    def _sessions(self) -> list[tuple[Door, ClientSession]]:
        return [
            (door, session)
            for door in self._doors
            for session in door.listener.sessions
            if isinstance(session, ClientSession)
        ]
