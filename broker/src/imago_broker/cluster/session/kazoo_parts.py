"""What is kazoo's own of a session with ZooKeeper: how it connects, its rights, its errors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kazoo import exceptions as kazoo_exceptions
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.retry import KazooRetry
from kazoo.security import (
    ACL,
    ANYONE_ID_UNSAFE,
    OPEN_ACL_UNSAFE,
    Permissions,
    make_digest_acl,
)

from imago_broker.cluster.session.tree_access import NodeRights, TreeAccess
from imago_broker.cluster.tree import (
    BadVersionError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    TreeConfigurationError,
    TreeUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

REFUSALS: dict[type[Exception], type[NodeError]] = {
    kazoo_exceptions.NoNodeError: NoNodeError,
    kazoo_exceptions.NodeExistsError: NodeExistsError,
    kazoo_exceptions.BadVersionError: BadVersionError,
    kazoo_exceptions.NotEmptyError: NotEmptyError,
}
_UNANSWERED = (
    kazoo_exceptions.ConnectionLoss,
    kazoo_exceptions.ConnectionClosedError,
    kazoo_exceptions.SessionExpiredError,
    kazoo_exceptions.SessionMovedError,
    kazoo_exceptions.OperationTimeoutError,
    kazoo_exceptions.CancelledError,
    KazooTimeoutError,
)
_DENIED = (kazoo_exceptions.NoAuthError, kazoo_exceptions.InvalidACLError)
OPEN: Final = TreeAccess()
CONNECT_SECONDS_MIN = 0.5


def acls_of(credentials: Sequence[tuple[str, str]]) -> dict[NodeRights, list[ACL]]:
    """Return rights as ZooKeeper has them, of the user alone and of everybody else.

    "auth" would stand for all that a session is, and so for all that show the same certificate.
    """
    ours = [
        make_digest_acl(user, password, all=True)
        for _, both in credentials
        for user, _, password in [both.partition(":")]
    ]
    read = ACL(Permissions.READ, ANYONE_ID_UNSAFE)
    extend = ACL(Permissions.READ | Permissions.CREATE, ANYONE_ID_UNSAFE)
    return {
        NodeRights.NONE: ours,
        NodeRights.READ: [*ours, read],
        NodeRights.EXTEND: [*ours, extend],
        NodeRights.ALL: OPEN_ACL_UNSAFE,
    }


def connection_retry(session_timeout_ms: int) -> KazooRetry:
    """Return when to try again: within a third of a session, kazoo's own jitter included.

    What is left of a session when its connection is found to be gone is no more than that.
    """
    jitter = 0.4
    delay_max = min(1.0, session_timeout_ms / 1000 / 3 / (1 + jitter))
    return KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=jitter, max_delay=delay_max)


class BoundedHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads; a server that answers nothing does not take all of a session to be left."""

    def __init__(self, session_timeout_ms: int, servers: int, access: TreeAccess = OPEN) -> None:
        super().__init__()
        self._access = access
        self._connect_seconds_max = max(
            CONNECT_SECONDS_MIN, session_timeout_ms / 1000 / 3 / max(1, servers)
        )

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connect to one server; kazoo would wait for a whole session.

        It would also trust all authorities that the system trusts, and any name of theirs.
        """
        options["timeout"] = self._connect_seconds_max
        connected = super().create_connection(*args, **options)
        try:
            context = self._access.context()
            if context is None:
                return connected
            return context.wrap_socket(connected, server_hostname=options["hostname"])
        except TreeConfigurationError as error:  # the files may be half written
            connected.close()
            raise OSError(str(error)) from error
        except OSError:
            connected.close()
            raise


def parse_hosts(hosts: str) -> tuple[list[tuple[str, int]], str]:
    """Return the servers and the chroot of `host:port[,host:port…][/chroot]`."""
    try:
        servers, chroot = collect_hosts(hosts)
    except ValueError as error:
        raise TreeConfigurationError(
            f"zookeeper.connect = {hosts!r}: {error}; write host:port[,host:port…][/chroot]"
        ) from error
    return servers, (chroot or "").rstrip("/")


def close(client: Any) -> None:
    """End a client for good, or as far as it lets itself be ended."""
    try:
        client.stop()
        client.close()
    except kazoo_exceptions.KazooException as error:
        # Its thread hangs in a connection. What it does later is nobody's business any more.
        logger.warning("zookeeper_client_hangs reason=%s", error)


def translated(error: Exception, where: str) -> Exception:
    for kind, ours in REFUSALS.items():
        if isinstance(error, kind):
            return ours(where)
    if isinstance(error, _UNANSWERED):
        return TreeUnavailableError(f"ZooKeeper did not answer: {type(error).__name__}")
    if isinstance(error, _DENIED):
        return NodeError(
            f"ZooKeeper denies {where} to this broker: it needs zookeeper.user and"
            " zookeeper.password_file of the brokers that made it"
        )
    return NodeError(f"ZooKeeper refused {where}: {type(error).__name__} {error}")
