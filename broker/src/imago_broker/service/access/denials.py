"""Requests that access control refused, or would: counted, and told without filling the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.model.access.access import Need
    from imago_broker.ports import Clock

log = logging.getLogger(__name__)

LOGGED_PEERS_MAX: Final = 1000
LOGGED_REASONS_MAX: Final = 8
"""Of a peer in a minute."""
LOG_SECONDS: Final = 60


@dataclass(slots=True)
class _Peer:
    """What was told of a peer in a minute."""

    minute: int
    told: set[str] = field(default_factory=set)
    untold: int = 0


class DenialLog:
    """A line for each reason of a peer in a minute, up to a few: nobody must fill the log.

    What is not told is counted, and the peer's next line says how often that was.
    """

    def __init__(self, clock: Clock, *, audit: bool = False) -> None:
        """`audit`: nobody is refused yet but by needs that `runs_cluster`."""
        self._clock = clock
        self.audit = audit
        self.audited = 0
        """Requests that would have been denied."""
        self._peers: dict[str, _Peer] = {}
        self.count = 0
        """Requests that were denied."""

    def serves_without(self, needs: Iterable[Need]) -> bool:
        """Whether a request is served whose user lacks what it needs."""
        return self.audit and not any(need.runs_cluster for need in needs)

    def note(self, address: str, what: str, reason: str, *, served: bool = False) -> None:
        """Count a denial, and tell it if this peer had none for this reason in this minute.

        `served`: it was none, but would be without `audit`.
        """
        if served:
            self.audited += 1
        else:
            self.count += 1
        minute = self._clock.monotonic_ms() // (LOG_SECONDS * 1000)
        peer = self._peers.get(address)
        if peer is None:
            if len(self._peers) >= LOGGED_PEERS_MAX:
                self._peers.clear()
            peer = self._peers[address] = _Peer(minute)
        if peer.minute != minute:
            peer.minute = minute
            peer.told.clear()
        if (told := f"{what} {reason:.200}") in peer.told or len(peer.told) >= LOGGED_REASONS_MAX:
            peer.untold += 1
            return
        peer.told.add(told)
        event = "access_would_be_denied" if served else "access_denied"
        untold = f" untold={peer.untold}" if peer.untold else ""
        peer.untold = 0
        said = ascii(reason[:200])[1:-1]
        log.warning("%s peer=%s %s%s reason=%s", event, address, what, untold, said)
