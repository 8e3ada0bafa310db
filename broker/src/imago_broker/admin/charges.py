"""What calls take is charged to those who have limits, as what the other ports' requests take."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from imago_broker.admin.calls.identity import OPERATOR, user_of
from imago_broker.admin.errors import AdminError
from imago_broker.model.access.users import MEMBER
from imago_broker.service.access.throttling import Direction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.service.access.throttling import QuotaService

RETRY_SECONDS: Final = 1


class ChargedRead:
    """What one call reads, by topic."""

    def __init__(self, quotas: QuotaService, user: str | None) -> None:
        """`user`: whose limits count beside those of topics; None: nobody has any."""
        self._quotas, self._user = quotas, user
        self._sizes: dict[str, int] = {}

    def begin(self, topic: str) -> None:
        """Read of a topic from now on; AdminError: its limits, or the user's, are used up."""
        if topic in self._sizes or self._user is None:
            return
        accounts = self._quotas.of(self._user, topic)
        if refusal := self._quotas.refusal(accounts, Direction.CONSUMER):
            raise AdminError(
                429,
                "quota",
                f"{refusal}.",
                "Read less, or in a while; an administrator raises limits: `imago user limits`.",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )
        self._sizes[topic] = 0

    def took(self, topic: str, size: int) -> None:
        """Count what is shown of a topic; AdminError: it must not be, see `begin`."""
        self.begin(topic)
        if self._user is not None:
            self._sizes[topic] += size

    def charge(self) -> float:
        """Charge it as one request; return for how many milliseconds its caller waits."""
        sizes = {topic: size for topic, size in self._sizes.items() if topic} or self._sizes
        pauses = [
            self._quotas.charge(
                self._quotas.of(self._user or "", topic),
                Direction.CONSUMER,
                size,
                requests=int(not at),
            )
            for at, (topic, size) in enumerate(sizes.items())
        ]
        return max(pauses, default=0)


@asynccontextmanager
async def reading(
    services: AdminServices, request: web.Request, topic: str
) -> AsyncIterator[ChargedRead]:
    """Charge what is read within the block, and be as slow as its caller's limits ask.

    `topic`: where it is looked for; "": wherever it is. AdminError: limits are used up. Who has the
    admin token has none.
    """
    user = user_of(request)
    limited = services.config.acl.enabled and user not in {MEMBER, OPERATOR}
    taken = ChargedRead(services.quotas, user if limited else None)
    taken.begin(topic)
    yield taken
    if pause_ms := taken.charge():
        await asyncio.sleep(pause_ms / 1000)
