"""The client ports while the mastership of the shard moves from this broker to another.

In order: `hold_puts` (requests wait in their sessions while the next master catches up), then
either `relay_to` (it has taken over: connections are relayed to it for some time) or `release`
(it has not, or this broker is the master again).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from imago_broker.server.relay import Address, Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.model.cluster import BrokerRecord
    from imago_broker.server.listener import Listener, Session

log = logging.getLogger(__name__)

HOLD_SECONDS_MAX = 2.0
"""Requests that have waited so long are served, and refused where that is what is left."""
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
        self._relays: set[Relay] = set()
        self._connects = asyncio.Semaphore(CONNECTS_MAX)
        for door in doors:
            door.listener.on_open = lambda session, door=door: self._opened(door, session)

    @property
    def relaying(self) -> bool:
        """Whether new requests go to another broker."""
        return self._phase is _Phase.RELAYING

    @property
    def relays(self) -> int:
        """Connections that are left to a relay."""
        return len(self._relays)

    def hold_puts(self) -> None:
        """Append what was taken; have every further request wait in its session.

        Nobody waits longer than `HOLD_SECONDS_MAX`. Calls while requests wait already do nothing.
        """
        if self._phase is _Phase.HOLDING:
            return
        self._end_relays()
        self._append_now()
        self._phase = _Phase.HOLDING
        for _, session in self._sessions():
            session.hold()
        self._set_timer(HOLD_SECONDS_MAX, self._held_too_long)

    def relay_to(self, record: BrokerRecord, linger_ms: int) -> None:
        """Pass every request on to this broker from now on, for so long.

        Requests that were taken are answered first; held polls end. A port that the other broker
        does not have goes on by itself.
        """
        self._end_relays()
        self._phase = _Phase.RELAYING
        self._idle.clear()
        self._to = record
        self._answer_held()
        for door, session in self._sessions():
            self._relay(door, session)
        log.info("relay_started to=%s connections=%d", record.host, len(self._relays))
        self._set_timer(linger_ms / 1000, self.release)

    def release(self) -> None:
        """Serve requests here again, as the master or as what else this broker is now."""
        phase, self._phase = self._phase, _Phase.SERVING
        self._idle.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if phase is _Phase.RELAYING:
            log.info("relay_ended connections=%d", len(self._relays))
            self._end_relays()
        elif phase is _Phase.HOLDING:
            for _, session in self._sessions():
                session.release()

    async def until_relayed(self) -> None:
        """Wait until the relaying is over."""
        await self._idle.wait()

    def _opened(self, door: Door, session: Session) -> None:
        if session.transport.is_closing():
            return
        if self._phase is _Phase.HOLDING:
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
