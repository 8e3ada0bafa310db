"""What channels of both protocols do alike: a connection waits, and whoever watches it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.server.connection_states import WaitReason

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from imago_broker.server.relay.relay_handover import ConnectionHandover
    from imago_broker.server.session import Watchers


class PeerChannel:
    """What goes to one peer. Nothing is written any more once the connection is closed."""

    transport: asyncio.Transport
    """Set before anything is written."""
    watchers: Watchers

    def __init__(self, handover: ConnectionHandover) -> None:
        self.address = ""
        self.certificate_user = ""
        self._handover = handover
        self._state = handover.state

    def hold_back(self) -> None:
        """Serve nothing more of this connection until `go_on`: a request of it needs time."""
        self._handover.wait(WaitReason.OWN_REQUEST)

    def go_on(self) -> None:
        """Serve what had to wait for that request."""
        self._handover.wait_no_more(WaitReason.OWN_REQUEST)

    def throttle(self, milliseconds: float) -> None:
        """Serve nothing more of this connection for so long."""
        self._handover.throttle(milliseconds)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the connection is gone."""
        self.watchers.add(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Take a watcher back."""
        self.watchers.remove(watcher)
