"""A connection as the fast paths of a send use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from imago_broker.service.groups.channel import Channel

if TYPE_CHECKING:
    from imago_wire.remoting.scanning.granting import Grants
    from imago_wire.remoting.scanning.items import SendItem


class SendingSession(Channel, Protocol):
    """A connection as the fast path uses it."""

    grants: Grants | None
    """What its users may do; None: all."""

    def serve_send(self, item: SendItem) -> None:
        """Serve a send through the table."""
        ...

    def push(self, data: bytes) -> None:
        """Add an answer that is written at the end of this round of puts."""
        ...

    def stored(self, answers: bytes) -> None:
        """Write the answers to the sends of one read."""
        ...


Token = tuple[SendingSession, int, int, int, bytes]
"""Session, opaque, form of the header, queue, unique key."""
