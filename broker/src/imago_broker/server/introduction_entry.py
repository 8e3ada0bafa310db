"""New connections from machines of brokers, until it is known whether they introduce a client.

All other connections have their session at once.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from typing import TYPE_CHECKING, Final

from imago_broker.server.introductions import FIRST_BYTE, TAKEN, IntroductionError
from imago_broker.server.session import Session

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from imago_broker.model.access.users import Introduced
    from imago_broker.server.introductions import Introductions

log = logging.getLogger(__name__)

WAIT_SECONDS_MAX: Final = 10
"""Who says nothing for so long introduces nobody."""


class IntroductionEntry(Session):
    """One connection whose client is not known yet."""

    def __init__(
        self,
        introductions: Introductions,
        *,
        target: str,
        is_member: Callable[[str], bool],
        make_session: Callable[[], Session],
    ) -> None:
        """`target`: HOST:PORT as other brokers know this port."""
        self._introductions, self._target = introductions, target
        self._is_member, self._make_session = is_member, make_session
        self._since_ms = time.monotonic_ns() // 1_000_000
        self._told = bytearray()
        self._left = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self.transport.is_closing() and not self._may_introduce():
            self._pass_on(None, b"")

    def data_received(self, data: bytes) -> None:
        self._told += data
        if self._told[0] != FIRST_BYTE:
            self._pass_on(None, bytes(self._told))
            return
        try:
            found = self._introductions.read(self._told, self._target)
        except IntroductionError as error:
            log.warning("introduction_refused peer=%s reason=%s", self.address, error)
            self.transport.close()
            return
        if found is not None:
            client, size = found
            self.transport.write(TAKEN)
            self._pass_on(client, bytes(self._told[size:]))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._left:
            super().connection_lost(exc)

    def sweep(self, now_ms: int) -> None:
        """Have a connection that says nothing served as its own; end one that stops halfway."""
        if now_ms - self._since_ms <= WAIT_SECONDS_MAX * 1000:
            return
        if self._told:
            self.transport.abort()
        else:
            self._pass_on(None, b"")

    def _may_introduce(self) -> bool:
        try:
            return ipaddress.ip_address(self.address).is_loopback or self._is_member(self.address)
        except ValueError:
            return False

    def _pass_on(self, client: Introduced | None, data: bytes) -> None:
        self._left = True
        session = self._make_session()
        session.introduced = client
        self.pass_on(session, self.transport, data)
