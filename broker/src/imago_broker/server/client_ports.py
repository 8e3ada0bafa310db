"""The client ports while the mastership of the shard moves from this broker to another.

In order: `hold_puts` (requests wait in their sessions while the next master catches up), then
either `relay_to` (it is to lead: once it says that it does, connections are relayed to it for some
time) or `release` (it does not, or this broker is the master again).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from imago_broker.server.probe import until_it_leads
from imago_broker.server.relay import Address, Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.model.cluster import BrokerRecord
    from imago_broker.server.listener import Listener, Session

log = logging.getLogger(__name__)

HOLD_SECONDS_MAX = 2.0
"""Requests that have waited so long are served, and refused where that is what is left."""
TAKEOVER_SECONDS_MAX = 3.0
"""How long the next master may take to lead, from the end of this one's mastership on."""
CONNECTS_MAX = 256
"""Connections to the new master that are being opened at a time."""


@dataclass(frozen=True, slots=True)
class Door:
    """One client port, and which port of another broker speaks the same."""

    listener: Listener
    port_of: Callable[[BrokerRecord], int]
    framed: bool
    """Whether it speaks RocketMQ's frames; else MetaQ."""


class _Phase(Enum):
    SERVING = "serving"
    HOLDING = "holding"
    TAKEOVER = "holding until the next master leads"
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
    ) -> None:
        """`append_now`: append the puts that were taken. `answer_held`: end all long polls."""
        self._doors = doors
        self._loop = loop
        self._append_now = append_now
        self._answer_held = answer_held
        self._phase = _Phase.SERVING
        self._to: BrokerRecord | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        """Set while nothing is relayed."""
        self._idle.set()
        self._takeover: asyncio.Task[None] | None = None
        self._relays: set[Relay] = set()
        self._connects = asyncio.Semaphore(CONNECTS_MAX)
        for door in doors:
            door.listener.on_open = lambda session, door=door: self._opened(door, session)

    @property
    def relaying(self) -> bool:
        """Whether new requests go to another broker, or will once that leads."""
        return self._phase in (_Phase.TAKEOVER, _Phase.RELAYING)

    @property
    def waiting(self) -> bool:
        """Whether new requests wait."""
        return self._phase in (_Phase.HOLDING, _Phase.TAKEOVER)

    @property
    def relays(self) -> int:
        """Connections that are left to a relay, or about to be."""
        waiting = self._phase is _Phase.TAKEOVER
        return len(self._sessions()) if waiting else len(self._relays)

    def hold_puts(self) -> None:
        """Append what was taken; have every further request wait in its session.

        Nobody waits longer than `HOLD_SECONDS_MAX`. Calls while requests wait already do nothing.
        """
        if self._phase is _Phase.HOLDING:
            return
        self.release()
        self._append_now()
        self._phase = _Phase.HOLDING
        for _, session in self._sessions():
            session.hold()
        self._set_timer(HOLD_SECONDS_MAX, self._held_too_long)

    def relay_to(self, record: BrokerRecord, linger_ms: int) -> None:
        """Pass every request on to this broker once it leads, for so long from now on.

        Requests that were taken are answered first; held polls end. A port that the other broker
        does not have goes on by itself, as all do when it cannot be reached or does not lead in
        time.
        """
        self._end_relays()
        self._phase = _Phase.TAKEOVER
        self._idle.clear()
        self._to = record
        self._answer_held()
        for _, session in self._sessions():
            session.hold()
        self._set_timer(linger_ms / 1000, self.release)
        self._takeover = self._loop.create_task(self._relay_when_it_leads(record))

    async def _relay_when_it_leads(self, record: BrokerRecord) -> None:
        try:
            async with asyncio.timeout(TAKEOVER_SECONDS_MAX):
                await until_it_leads(record)
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
        log.info("relay_started to=%s connections=%d", record.host, len(self._relays))

    def release(self) -> None:
        """Serve requests here again, as the master or as what else this broker is now."""
        phase, self._phase = self._phase, _Phase.SERVING
        self._idle.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._takeover is not None:
            self._takeover.cancel()
            self._takeover = None
        if phase is _Phase.RELAYING:
            log.info("relay_ended connections=%d", len(self._relays))
            self._end_relays()
        elif phase is not _Phase.SERVING:
            for _, session in self._sessions():
                session.release()

    async def until_relayed(self) -> None:
        """Wait until the relaying is over."""
        await self._idle.wait()

    def _opened(self, door: Door, session: Session) -> None:
        if session.transport.is_closing():
            return
        if self.waiting:
            session.hold()
        elif self._phase is _Phase.RELAYING:
            self._relay(door, session)

    def _relay(self, door: Door, session: Session) -> None:
        assert self._to is not None
        port = door.port_of(self._to)
        if not port:
            session.release()
            return
        session.hold()
        relay = Relay(
            Address(self._to.host, port),
            framed=door.framed,
            connects=self._connects,
            on_end=self._relays.discard,
        )
        self._relays.add(relay)
        session.hand_over(relay)

    def _end_relays(self) -> None:
        for relay in tuple(self._relays):
            relay.finish()

    def _held_too_long(self) -> None:
        log.warning("held_too_long seconds=%g", HOLD_SECONDS_MAX)
        self.release()

    def _set_timer(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, act)

    def _sessions(self) -> list[tuple[Door, Session]]:
        return [(door, session) for door in self._doors for session in door.listener.sessions]
