"""The rows of users, rules and accounts.

A member that does not lead has the master change them. A change is answered once all shards have
it, as the admin interface answers it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from imago_broker.errors import BrokerError
from imago_broker.processors.rocketmq.rows import Row, not_here
from imago_broker.processors.rocketmq.settled_elsewhere import SettledLater
from imago_broker.processors.rocketmq.users.admin_plain_acl import PlainAclAdmin
from imago_broker.processors.rocketmq.users.admin_users import UserAdmin
from imago_broker.service.access.access_drafts import Drafts, version_of
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.processors.rocketmq.exchange import Exchange, Lane, Reply
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.processors.rocketmq.rows import Handler
    from imago_broker.service.access.access import AccessService

    PassOn = Callable[[Drafts], Awaitable[None]]
    Spread = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


def access_rows(
    access: AccessService,
    identity: RocketmqIdentity,
    lane: Lane,
    pass_on: PassOn,
    spread: Spread,
) -> list[Row]:
    """Return the rows. `pass_on` has the master take changes over, `spread` all other shards;
    BrokerError: it does not, or one of them has not."""
    users = UserAdmin(access, cluster=identity.cluster)
    accounts = PlainAclAdmin(access, identity)
    passing, spreading = _PassingOn(access, pass_on), SettledLater(spread)
    changes: dict[Code, Handler] = {
        Code.UPDATE_AND_CREATE_ACL_CONFIG: accounts.update,
        Code.DELETE_ACL_CONFIG: accounts.delete,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: accounts.set_white_addresses,
        Code.AUTH_CREATE_USER: users.create,
        Code.AUTH_UPDATE_USER: users.update,
        Code.AUTH_DELETE_USER: users.delete,
        Code.AUTH_CREATE_ACL: users.create_acl,
        Code.AUTH_UPDATE_ACL: users.create_acl,
        Code.AUTH_DELETE_ACL: users.delete_acl,
    }
    shows: dict[Code, Handler] = {
        Code.GET_BROKER_CLUSTER_ACL_INFO: accounts.version,
        Code.AUTH_GET_USER: users.show,
        Code.AUTH_LIST_USER: users.list_all,
        Code.AUTH_GET_ACL: users.show_acl,
        Code.AUTH_LIST_ACL: users.list_acls,
    }
    return [
        *(
            Row(
                code,
                serve,
                lane,
                Asks.CHANGE,
                replicated=True,
                settle=spreading.answer,
                elsewhere=passing.serve(serve),
            )
            for code, serve in changes.items()
        ),
        *(Row(code, serve, lane) for code, serve in shows.items()),
    ]


class _PassingOn:
    """mqadmin asks every member of a shard for the same: those that do not lead ask the master."""

    def __init__(self, access: AccessService, pass_on: PassOn) -> None:
        self._access, self._pass_on = access, pass_on
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, handler: Handler) -> Handler:
        """Return what serves a change on a member that may not write."""

        def passed_on(exchange: Exchange) -> Reply | None:
            with self._access.drafting() as drafted:
                reply = handler(exchange)
            if not drafted or reply is None:
                return reply
            drafts = Drafts(exchange.user, version_of(self._access, exchange.user), drafted)
            task = asyncio.get_running_loop().create_task(self._pass(exchange, reply, drafts))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None

        return passed_on

    async def _pass(self, exchange: Exchange, reply: Reply, drafts: Drafts) -> None:
        try:
            await self._pass_on(drafts)
        except BrokerError as error:
            log.warning("access_not_passed_on reason=%s", error)
            reply = not_here(str(error))
        exchange.answer(reply)
