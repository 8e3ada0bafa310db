"""Who is connected: producers and consumers by group, as their heartbeats say.

A connection that closes takes its clients along at once; a client that is silent for two minutes
is forgotten. Whenever the members or the subscriptions of a consumer group change, every member is
told, so that all of them divide the queues anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_wire.remoting.command import RemotingCommand


class Channel(Protocol):
    """A client's connection as services and processors see it."""

    peer: str
    """`address:port` of the other side."""

    @property
    def is_open(self) -> bool: ...

    def reply(self, request: RemotingCommand, reply: object) -> None:
        """Write the answer to a request of the client."""

    def notify(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Send a one-way request to the client."""

    def call(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
        done: Callable[[RemotingCommand | None], None],
    ) -> None:
        """Send a request to the client; `done` gets its answer, or None when none comes."""

    def close(self) -> None:
        """Close the connection after what is written."""
