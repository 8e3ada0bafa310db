"""A connection as the MetaQ processors see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.results import FileSlice
    from imago_wire.remoting.scanning.granting import UserGrants


class Peer(Protocol):
    """What processors call of a connection; nothing of it writes to the socket."""

    born_host: bytes
    """Its address and port as records hold them."""
    address: str
    """Its address alone."""
    certificate_user: str
    """Whom its certificate names, or whom it has proved to be; empty: nobody."""
    grants: UserGrants | None
    """What its user may do; None: nobody has asked."""
    finishing: bool
    """Whether no further request is to be served."""
    puts: int
    """Puts, counted by reads, and transactions' commands that have no answer yet."""

    reads: dict[str, str]
    """Topics that it reads, each with the group that it named last."""

    answered_bytes: int
    """Of all answers but those to puts that succeeded, until now."""

    def become(self, user: str) -> None:
        """Be this user's from now on: it has proved to be."""

    def throttle(self, milliseconds: float) -> None:
        """Read and work on nothing more for so long."""

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the connection is gone, beside all others."""

    def when_lost(self, told: Callable[[Peer], None]) -> None:
        """Call `told` when the connection is gone, in place of whatever was to be called."""

    def stored(self, answers: bytes) -> None:
        """Write the answers to successful puts now."""

    def reply(self, *parts: bytes) -> None:
        """Add an answer to the next write; the parts follow each other."""

    def reply_file(self, head: bytes, data: FileSlice) -> None:
        """Write an answer whose body is part of a file, after everything that was added."""

    @property
    def held(self) -> bool:
        """Whether nothing more is worked on until `go_on`."""
        ...

    def hold_back(self) -> None:
        """Read and work on nothing more for now."""

    def go_on(self) -> None:
        """Work on what had to wait."""

    def is_full(self) -> bool:
        """Whether so many answers wait that no further request should be worked on."""

    def flush(self) -> None:
        """Write everything that was added."""

    def finish(self) -> None:
        """Read no more requests, and close once everything is answered."""
