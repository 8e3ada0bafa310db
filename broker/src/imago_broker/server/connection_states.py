"""Who has a client's connection, and what may happen to it: the table that both protocols follow.

A connection belongs to its session, or to a relay that passes its requests on to another broker.
`TRANSITIONS` says for each phase which events may happen and which phase follows; any other event
is a mistake of the broker's and raises. Beside its phase a connection may have reasons to wait;
each is given and taken back by itself, in any phase.
"""

from __future__ import annotations

from enum import Enum, IntFlag


class ConnectionPhase(Enum):
    """Who has the connection."""

    SERVING = "its session serves what comes"
    LEAVING = "a relay gets it once the session has answered what it has begun"
    RELAYED = "a relay has it"
    CHANGING = "a relay has it, and another one gets it at that one's end"
    RECALLED = "a relay has it; the session closes it at the relay's end"
    ENDING = "nothing more is read; it is closed once everything is answered"
    CLOSED = "it is closed, or about to be: answers reach nobody"


class ConnectionEvent(Enum):
    """What may happen to it."""

    HAND_OVER = "a relay is to have it"
    LEAVE = "the relay takes it"
    TAKE_BACK = "the relay that has it has ended"
    END = "the port closes, or the peer has asked for the last time"
    CLOSE = "one side has closed it"


TRANSITIONS: dict[ConnectionPhase, dict[ConnectionEvent, ConnectionPhase]] = {
    ConnectionPhase.SERVING: {
        ConnectionEvent.HAND_OVER: ConnectionPhase.LEAVING,
        ConnectionEvent.END: ConnectionPhase.ENDING,
        ConnectionEvent.CLOSE: ConnectionPhase.CLOSED,
    },
    ConnectionPhase.LEAVING: {
        ConnectionEvent.HAND_OVER: ConnectionPhase.LEAVING,
        ConnectionEvent.LEAVE: ConnectionPhase.RELAYED,
        ConnectionEvent.END: ConnectionPhase.ENDING,
        ConnectionEvent.CLOSE: ConnectionPhase.CLOSED,
    },
    ConnectionPhase.RELAYED: {
        ConnectionEvent.HAND_OVER: ConnectionPhase.CHANGING,
        ConnectionEvent.TAKE_BACK: ConnectionPhase.SERVING,
        ConnectionEvent.END: ConnectionPhase.RECALLED,
        ConnectionEvent.CLOSE: ConnectionPhase.CLOSED,
    },
    ConnectionPhase.CHANGING: {
        ConnectionEvent.HAND_OVER: ConnectionPhase.CHANGING,
        ConnectionEvent.TAKE_BACK: ConnectionPhase.LEAVING,
        ConnectionEvent.END: ConnectionPhase.RECALLED,
        ConnectionEvent.CLOSE: ConnectionPhase.CLOSED,
    },
    ConnectionPhase.RECALLED: {
        ConnectionEvent.TAKE_BACK: ConnectionPhase.ENDING,
        ConnectionEvent.END: ConnectionPhase.RECALLED,
        ConnectionEvent.CLOSE: ConnectionPhase.CLOSED,
    },
    ConnectionPhase.ENDING: {
        ConnectionEvent.END: ConnectionPhase.ENDING,
        ConnectionEvent.CLOSE: ConnectionPhase.CLOSED,
    },
    ConnectionPhase.CLOSED: {
        ConnectionEvent.END: ConnectionPhase.CLOSED,
        ConnectionEvent.CLOSE: ConnectionPhase.CLOSED,
    },
}

RELAYED = frozenset({ConnectionPhase.RELAYED, ConnectionPhase.CHANGING, ConnectionPhase.RECALLED})
"""The phases in which a relay speaks."""


class WaitReason(IntFlag):
    """Why nothing of a connection is served for now."""

    TAKEOVER = 1
    """Another broker is about to take all connections over."""
    OWN_REQUEST = 2
    """One of its requests needs time, and the order of its requests is kept."""
    PEER = 4
    """Its peer does not read the answers that it has."""
    QUOTA = 8
    """Its user, or a topic, has taken more than its limits allow."""


class WrongEventError(Exception):
    """An event that may not happen in the phase in which the connection is."""


class ConnectionState:
    """The phase of one connection and why it waits; what follows from both is kept at hand."""

    __slots__ = ("closed", "phase", "reads", "serves", "waits")

    def __init__(self) -> None:
        self.phase = ConnectionPhase.SERVING
        self.waits = 0
        """The reasons (`WaitReason`), joined."""
        self.reads = True
        """Whether what comes is served at once."""
        self.serves = True
        """Whether what was read is served at once."""
        self.closed = False

    def may(self, event: ConnectionEvent) -> bool:
        """Whether the event may happen now."""
        return event in TRANSITIONS[self.phase]

    def happened(self, event: ConnectionEvent) -> ConnectionPhase:
        """Note an event, and return the phase that it leads to."""
        following = TRANSITIONS[self.phase].get(event)
        if following is None:
            raise WrongEventError(f"{event.name} while {self.phase.name}: {self.phase.value}")
        self.phase = following
        self._follow()
        return following

    def wait(self, reason: WaitReason) -> None:
        """Serve nothing, for this reason too."""
        self.waits |= reason.value
        self._follow()

    def wait_no_more(self, reason: WaitReason) -> None:
        """Take a reason back."""
        self.waits &= ~reason.value
        self._follow()

    def _follow(self) -> None:
        phase, free = self.phase, not self.waits
        self.reads = free and phase is ConnectionPhase.SERVING
        self.serves = free and (phase is ConnectionPhase.SERVING or phase is ConnectionPhase.ENDING)
        self.closed = phase is ConnectionPhase.CLOSED
