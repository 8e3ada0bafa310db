"""A client's connection as services and processors see it, and what they answer on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_wire.remoting.command import RemotingCommand


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request. `ext` is the answer's header, every value as text."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    ext: Mapping[str, str] | None = None
    body: bytes | Sequence[bytes] = b""
    """One piece, or several that are sent one after the other without being joined."""


class Channel(Protocol):
    """A client's connection as services and processors see it."""

    peer: str
    """`address:port` of the other side."""
    born_host: bytes
    """The same as records hold it: 4 or 16 bytes of address, 4 bytes of port."""
    address: str
    """The address alone."""
    certificate_user: str
    """Whom the other side's certificate names; empty: it has shown none."""
    transaction_owner: str
    """Of whose share the transactions are that it begins; empty: it has begun none."""

    @property
    def is_open(self) -> bool:
        """Whether answers still reach the peer."""
        ...

    def reply(self, request: RemotingCommand, reply: Reply) -> None:
        """Write the answer to a request of the client."""
        ...

    def notify(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Send a one-way request to the client."""
        ...

    def call(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
        done: Callable[[RemotingCommand | None], None],
    ) -> None:
        """Send a request to the client; `done` gets its answer, or None when none comes."""
        ...

    def hold_back(self) -> None:
        """Serve nothing more of this connection until `go_on`: one of its requests needs time."""
        ...

    def go_on(self) -> None:
        """Serve what had to wait."""
        ...

    def throttle(self, milliseconds: float) -> None:
        """Serve nothing more of this connection for so long."""
        ...

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the connection is gone."""
        ...

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Take a watcher back."""
        ...

    def close(self) -> None:
        """Close the connection after what is written."""
        ...
