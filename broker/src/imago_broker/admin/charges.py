"""What calls take is charged to those who have limits, as what the other ports' requests take."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from imago_broker.admin.calls.identity import OPERATOR, user_of
from imago_broker.admin.errors import AdminError
from imago_broker.model.access.users import MEMBER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.service.access.throttling import Direction, QuotaService

RETRY_SECONDS: Final = 1


class ChargedCall:
    """What one call reads or puts, by topic."""

    def __init__(self, quotas: QuotaService, user: str | None, direction: Direction) -> None:
        """`user`: whose limits count beside those of topics; None: nobody has any."""
        self._quotas, self._user, self._direction = quotas, user, direction
        self._sizes: dict[str, int] = {}

    def begin(self, topic: str) -> None:
        """Take of a topic from now on; AdminError: its limits, or the user's, are used up."""
        if topic in self._sizes or self._user is None:
            return
        accounts = self._quotas.of(self._user, topic)
        if refusal := self._quotas.refusal(accounts, self._direction):
            raise AdminError(
                429,
                "quota",
                f"{refusal}.",
                "Take less, or in a while; an administrator raises limits: `imago user limits`.",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )
        self._sizes[topic] = 0

    def took(self, topic: str, size: int) -> None:
        """Count what is shown or put of a topic; AdminError: it must not be, see `begin`."""
        self.begin(topic)
        if self._user is not None:
            self._sizes[topic] += size

    def charge(self) -> float:
        """Charge it as one request; return for how many milliseconds its caller waits."""
        sizes = {topic: size for topic, size in self._sizes.items() if topic} or self._sizes
        pauses = [
            self._quotas.charge(
                self._quotas.of(self._user or "", topic),
                self._direction,
                size,
                requests=int(not at),
            )
            for at, (topic, size) in enumerate(sizes.items())
        ]
        return max(pauses, default=0)


@asynccontextmanager
async def charged(
    services: AdminServices, request: web.Request, topic: str, direction: Direction
) -> AsyncIterator[ChargedCall]:
    """Charge what is taken within the block, and be as slow as its caller's limits ask.

    `topic`: where it is looked for; "": wherever it is. AdminError: limits are used up. Who has the
    admin token has none.
    """
    user = user_of(request)
    limited = services.config.acl.enabled and user not in {MEMBER, OPERATOR}
    taken = ChargedCall(services.quotas, user if limited else None, direction)
    taken.begin(topic)
    pause_ms = 0.0
    try:
        yield taken
    finally:
        pause_ms = taken.charge()
    if pause_ms:
        await asyncio.sleep(pause_ms / 1000)
