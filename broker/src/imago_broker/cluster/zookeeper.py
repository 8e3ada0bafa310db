"""The tree of nodes in ZooKeeper. Only this module and `kazoo_parts` import kazoo.

kazoo runs threads of its own and calls back in them: every callback here only hops to the event
loop. What kazoo tells is followed with care:

- it says LOST only once a server is reached that knows of the session's end; whoever needs an
  upper bound counts from SUSPENDED (the coordinator does);
- it queues requests while it has no connection, and would do them at some later time: nothing is
  given to it then;
- a request without an answer (the connection broke) may have been done: it becomes
  `TreeUnavailableError`, and whoever asked looks again;
- its thread ends with an error that it does not expect, such as an answer out of order, and then
  nothing connects any more: its client is replaced;
- the time-out that the server granted is not told: we ask for it ourselves before we start.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo import exceptions as kazoo_exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.edits import edits
from imago_broker.cluster.session.granted_timeouts import Grants
from imago_broker.cluster.session.kazoo_parts import (
    OPEN,
    REFUSALS,
    BoundedHandler,
    acls_of,
    close,
    connection_retry,
    parse_hosts,
    translated,
)
from imago_broker.cluster.session.node_acl import RightsWalk
from imago_broker.cluster.session.session import TreeSession
from imago_broker.cluster.session.tree_access import NodeRights
from imago_broker.cluster.tree import (
    OPERATIONS_MAX,
    Check,
    Create,
    Delete,
    Node,
    NoNodeError,
    Operation,
    SetData,
    TreeConfigurationError,
    TreeUnavailableError,
)
from imago_broker.cluster.znodes import Paths
from imago_broker.model.registry.cluster import RegistryConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.cluster.session.tree_access import TreeAccess
    from imago_broker.cluster.settings import CoordinatorConfig

logger = logging.getLogger(__name__)
kazoo_logger = logger.getChild("kazoo")
kazoo_logger.setLevel(logging.WARNING)  # each state is logged by the coordinator

_STATES = {
    KazooState.CONNECTED: RegistryConnection.CONNECTED,
    KazooState.SUSPENDED: RegistryConnection.SUSPENDED,
    KazooState.LOST: RegistryConnection.LOST,
}
RENEW_AFTER_SESSIONS = 3
"""After so many session time-outs without a connection a session is given up."""
RENEW_ENDED_SECONDS = 1.0
"""After which a client is replaced whose thread has ended."""


def zookeeper_coordinator(
    config: CoordinatorConfig, hosts: str, access: TreeAccess = OPEN
) -> TreeCoordinator:
    """Make a coordinator over `host:port[,host:port…][/chroot]`."""
    tree = ZooKeeperTree(
        hosts,
        session_timeout_ms=config.session_timeout_ms,
        connect_timeout_ms=config.connect_timeout_ms,
        access=access,
        owned=(Paths(config.cluster).root, f"{config.metaq_root}/brokers"),
    )
    return TreeCoordinator(config, tree)


class ZooKeeperTree(TreeSession):
    """One session with a ZooKeeper ensemble, opened again by itself when it ends."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        connect_timeout_ms: int,
        access: TreeAccess = OPEN,
        owned: Sequence[str] = (),
    ) -> None:
        """`owned`: below these all is to have the rights that `access` says."""
        super().__init__()
        self._access = access
        self._owned = owned
        self._protecting: asyncio.Task[None] | None = None
        self._credentials: list[tuple[str, str]] = []
        self._acls = acls_of(())
        self._hosts = hosts
        self._servers: list[tuple[str, int]] = []
        self._chroot = ""
        self._session_timeout_ms = session_timeout_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first_connection: asyncio.Future[None] | None = None
        self._client: Any = None
        self._grants = Grants((), wanted_ms=session_timeout_ms)
        self._asking: asyncio.Task[None] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._servers, self._chroot = parse_hosts(self._hosts)
        access = self._access
        access.context()
        self._credentials = access.credentials()
        grants = self._grants = Grants(
            self._servers, wanted_ms=self._session_timeout_ms, context=access.context
        )
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                await grants.first()
                await self._connect()
        except TimeoutError as error:
            raise TreeUnavailableError(
                f"no ZooKeeper answers at {self._hosts} within {self._connect_timeout_ms} ms"
                + (f": {grants.problem}" if grants.problem else "")
            ) from error
        await self._make_chroot()
        self._asking = asyncio.create_task(grants.others(self._more_servers))
        if access.user:
            word = "protected" if access.protects else "opened"
            walk = RightsWalk(self.children, self._give_rights, word=word)
            roots = [path for path in self._owned if not access.leaves(path)]
            self._protecting = asyncio.create_task(walk.in_time(access.folders, roots))

    async def stop(self) -> None:
        self._stopped = True
        for task in (self._asking, self._protecting):
            if task:
                task.cancel()
        self._cancel_renewal()
        if self._renewing:
            await self._renewing
        client, self._client = self._client, None
        if client is not None:
            # Joins kazoo's threads, so not in the loop that their last callbacks hop to.
            await asyncio.to_thread(close, client)
            self._session(RegistryConnection.LOST, 0)

    async def get(self, path: str, watch: bool = False) -> Node | None:
        watcher = self._watch_fired if watch else None
        while True:
            try:
                data, stat = await self._ask(
                    lambda client: client.get_async(self._chroot + path, watcher)
                )
            except NoNodeError:
                # A missing node takes its watch from `exists` only.
                if not watch or not await self._exists(path, watcher):
                    return None
            else:
                # Containers of MetaQ's clients have none at all.
                return Node(data or b"", stat.version, stat.czxid, stat.ephemeralOwner)

    async def children(self, path: str, watch: bool = False) -> tuple[str, ...]:
        watcher = self._watch_fired if watch else None
        names = await self._ask(
            lambda client: client.get_children_async(self._chroot + path, watcher)
        )
        return tuple(sorted(names))

    async def sync(self) -> None:
        await self._ask(lambda client: client.sync_async(self._chroot or "/"))

    async def commit(self, operations: Sequence[Operation]) -> None:
        assert 0 < len(operations) <= OPERATIONS_MAX, "the caller cuts its batches"
        results = await self._ask(lambda client: self._transaction(client, operations))
        failed = [
            (result, operation.path)
            for result, operation in zip(results, operations, strict=True)
            if isinstance(result, Exception)
        ]
        if failed:
            # One operation failed; the others say only that they were rolled back.
            cause, path = next((f for f in failed if type(f[0]) in REFUSALS), failed[0])
            raise translated(cause, path)

    def abandon(self) -> None:  # in any thread
        client, loop = self._client, self._loop
        if client is not None and loop is not None:
            close(client)
            _hop(loop, self._renew_soon)

    async def _connect(self) -> None:
        assert self._loop is not None, "called by start"
        self._first_connection = self._loop.create_future()
        self._open_client()
        await self._first_connection

    def _open_client(self) -> None:
        try:
            self._credentials = self._access.credentials()
        except TreeConfigurationError as error:  # the file may be half written
            logger.warning("zookeeper_password_refused reason=%s; the former one stays", error)
        self._acls = acls_of(self._credentials)
        client = KazooClient(
            hosts=self._usable(),
            timeout=self._session_timeout_ms / 1000,
            logger=kazoo_logger,
            connection_retry=connection_retry(self._session_timeout_ms),
            handler=BoundedHandler(self._session_timeout_ms, len(self._servers), self._access),
            auth_data=self._credentials or None,
        )
        client.add_listener(partial(self._kazoo_state, client))
        self._client = client
        client.start_async()

    def _usable(self) -> str:
        return ",".join(f"{_bracketed(host)}:{port}" for host, port in self._grants.approved)

    def _more_servers(self) -> None:
        if self._client is not None:
            self._client.set_hosts(self._usable())

    async def _renew(self) -> None:
        """Give up a session that found no way back for very long, and open a new one.

        A server that has lost its data refuses a client that has seen newer data, for ever.
        """
        logger.warning("zookeeper_session_given_up session=%x", self._session_id)
        self._cancel_renewal()
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(close, client)
        self._session(RegistryConnection.LOST, 0)
        if not self._stopped:
            self._open_client()

    async def _make_chroot(self) -> None:
        parts = [part for part in self._chroot.split("/") if part]
        paths = ["/" + "/".join(parts[: end + 1]) for end in range(len(parts))]
        chroot, self._chroot = self._chroot, ""
        access, self._access = self._access, OPEN  # others' clusters may be below it, too
        try:
            await edits.ensure(self, [(path, b"") for path in paths])
        finally:
            self._chroot, self._access = chroot, access

    def _acl(self, path: str) -> list[Any] | None:
        """Return who may do what with a node; None: everybody may do all."""
        return self._acls[self._access.rights(path)] if self._access.protects else None

    async def _give_rights(self, path: str) -> bool:
        """Give a node its rights; without protection, to everybody what was our user's."""
        full, everybody = self._chroot + path, self._acls[NodeRights.ALL]
        found, _ = await self._ask(lambda client: client.get_acls_async(full))
        wanted = self._acl(path) or everybody
        stays = found == wanted
        if path in self._access.folders and self._access.protects:
            stays = found != everybody  # it is the folder of others, too, who may have made it
        elif not self._access.protects:
            stays = stays or found not in self._acls.values()
        if not stays:
            await self._ask(lambda client: client.set_acls_async(full, wanted))
        return not stays

    async def _exists(self, path: str, watcher: Callable[[WatchedEvent], None] | None) -> bool:
        stat = await self._ask(lambda client: client.exists_async(self._chroot + path, watcher))
        return stat is not None

    def _transaction(self, client: Any, operations: Sequence[Operation]) -> Any:
        transaction = client.transaction()
        for operation in operations:
            path = self._chroot + operation.path
            match operation:
                case Create():
                    acl = self._acl(operation.path)
                    transaction.create(path, operation.data, acl, operation.ephemeral)
                case SetData():
                    transaction.set_data(path, operation.data, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
                case Check():
                    transaction.check(path, operation.version)
        return transaction.commit_async()

    async def _ask(self, request: Callable[[Any], Any]) -> Any:
        """Give kazoo a request and wait in the loop for its answer."""
        if self._connection is not RegistryConnection.CONNECTED or self._client is None:
            raise TreeUnavailableError(f"the ZooKeeper session is {self._connection}")
        loop = asyncio.get_running_loop()
        answered = loop.create_future()

        def completed(result: Any) -> None:  # in a thread of kazoo
            _hop(loop, _resolve, answered, result)

        request(self._client).rawlink(completed)
        try:
            return await answered
        except kazoo_exceptions.KazooException as error:
            raise translated(error, self._hosts) from error
        except (KazooTimeoutError, RuntimeError) as error:
            # RuntimeError: kazoo's own, of answers out of order.
            raise TreeUnavailableError(f"ZooKeeper: {error}") from error

    def _kazoo_state(self, client: Any, state: str) -> None:  # in a thread of kazoo
        client_id = client.client_id
        if self._loop is not None:
            session_id = client_id[0] if client_id else 0
            ended = client.client_state == KeeperState.CLOSED
            _hop(self._loop, self._state_changed, client, _STATES[state], session_id, ended)

    def _state_changed(
        self, client: Any, connection: RegistryConnection, session_id: int, ended: bool
    ) -> None:
        if client is not self._client:
            return  # the last words of one that was given up
        self._cancel_renewal()
        if connection is not RegistryConnection.CONNECTED:
            seconds = RENEW_AFTER_SESSIONS * self._session_timeout_ms / 1000
            if ended:
                seconds = RENEW_ENDED_SECONDS
            self._renewal = asyncio.get_running_loop().call_later(seconds, self._renew_soon)
        self._session(connection, session_id)

    def _cancel_renewal(self) -> None:
        if self._renewal:
            self._renewal.cancel()
            self._renewal = None

    def _renew_soon(self) -> None:
        self._cancel_renewal()
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())

    def _watch_fired(self, event: WatchedEvent) -> None:  # in a thread of kazoo
        # A broken connection fires all watches with no event: everything is read again anyway.
        if event.type != EventType.NONE and event.path and self._loop is not None:
            _hop(self._loop, self._tell_watchers, event.path.removeprefix(self._chroot))

    def _session(self, connection: RegistryConnection, session_id: int) -> None:
        if connection is RegistryConnection.CONNECTED:
            self._session_id = session_id
            if self._first_connection and not self._first_connection.done():
                self._first_connection.set_result(None)
        self._become(connection)


def _hop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        # The loop has ended before kazoo's threads did: nobody waits for this any more.
        logger.debug("zookeeper_callback_dropped")


def _resolve(answered: asyncio.Future[Any], result: Any) -> None:
    if answered.done():
        return
    error = result.exception
    if error is None:
        answered.set_result(result.value)
    else:
        answered.set_exception(error)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
