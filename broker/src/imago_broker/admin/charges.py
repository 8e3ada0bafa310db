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

RETRY_SECONDS: Final = 1


class ChargedRead:
    """What one call reads."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of the messages."""


@asynccontextmanager
async def reading(
    services: AdminServices, request: web.Request, topic: str
) -> AsyncIterator[ChargedRead]:
    """Charge what is read of a topic within the block, and be as slow as its caller's limits ask.

    AdminError: they are used up. Who has the admin token has none.
    """
    taken, user, quotas = ChargedRead(), user_of(request), services.quotas
    limited = services.config.acl.enabled and user not in {MEMBER, OPERATOR}
    accounts = quotas.of(user, topic) if limited else ()
    if refusal := quotas.refusal(accounts, Direction.CONSUMER):
        raise AdminError(
            429,
            "quota",
            f"{refusal}.",
            "Read less, or in a while; an administrator raises limits: `imago user limits`.",
            headers={"Retry-After": str(RETRY_SECONDS)},
        )
    yield taken
    if accounts:
        await asyncio.sleep(quotas.charge(accounts, Direction.CONSUMER, taken.size) / 1000)
