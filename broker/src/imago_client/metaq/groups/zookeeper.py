"""The tree of MetaQ's clients in ZooKeeper. Only this module of the clients imports kazoo.

kazoo has threads of its own. Requests here block the caller's thread until they are answered; a
client on asyncio has them done in another thread. Whoever wants to know of changes is called in
kazoo's thread, for every watch that fires, for a session that is lost, and for one that comes back.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from kazoo import exceptions as kazoo_exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from imago_client.core.metaq.nodes import (
    ListNode,
    MakeNode,
    NodeOperation,
    NodeRequest,
    ReadNode,
    RemoveNode,
    TreePaths,
    WriteNode,
)
from imago_client.errors import ClientClosedError, ConnectionLostError, TryAgainError
from imago_client.metaq.groups.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.metaq.groups.threads import Apart
    from imago_client.metaq.values import MetaqConfig

log = logging.getLogger(__name__)
kazoo_log = log.getChild("kazoo")
kazoo_log.setLevel(logging.ERROR)  # what it cannot do is an error here

T = TypeVar("T")


class MetaqTree:
    """One session. It is opened by `start`, and opened anew by itself where it is lost."""

    def __init__(self, config: MetaqConfig, apart: Apart = in_thread) -> None:
        """`apart`: where a coroutine has calls done that block."""
        assert config.zookeeper is not None
        self.address = config.zookeeper
        self.paths = TreePaths(config.zk_root)
        self.sessions = 0
        """How many sessions were lost: what a member owned in one of those is gone."""
        self.changes = 0
        """Grows whenever what was read may no longer be so."""
        self._config, self.apart = config, apart
        self._listeners: list[Callable[[], None]] = []
        self._client: Any = None
        self._closed = False

    def start(self) -> None:
        """Open the session. ConnectionLostError: nobody answers."""
        self._client = KazooClient(
            hosts=self.address,
            timeout=self._config.zk_session_timeout_s,
            logger=kazoo_log,
        )
        self._client.add_listener(self._state_changed)
        try:
            self._client.start(timeout=self._config.connect_timeout_s)
        except (KazooTimeoutError, kazoo_exceptions.KazooException) as error:
            self.close()
            waited = f"no ZooKeeper within {self._config.connect_timeout_s:g} s"
            raise ConnectionLostError(self.address, waited) from error

    def close(self) -> None:
        """End the session: what is ephemeral is gone at once."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(kazoo_exceptions.KazooException):
                client.stop()
                client.close()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener`, in another thread, when something may have changed."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def run(self, operation: NodeOperation[T]) -> T:
        """Run an operation to its end in this thread. TryAgainError: ZooKeeper is not there."""
        try:
            request = next(operation)
            while True:
                request = operation.send(self._answer(request))
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            operation.close()

    async def ask(self, operation: NodeOperation[T]) -> T:
        """Run an operation to its end apart from the event loop."""
        return await self.apart(self.run, operation)

    def _answer(self, request: NodeRequest) -> object:
        client = self._client
        if self._closed or client is None:
            raise ClientClosedError
        if client.state != KazooState.CONNECTED:  # kazoo would do it at some later time
            raise ConnectionLostError(self.address, f"the session is {client.state.lower()}")
        try:
            return self._asked(client, request)
        except (
            kazoo_exceptions.ConnectionLoss,
            kazoo_exceptions.ConnectionClosedError,
            kazoo_exceptions.SessionExpiredError,
            kazoo_exceptions.OperationTimeoutError,
            kazoo_exceptions.CancelledError,
            KazooTimeoutError,
        ) as error:
            raise ConnectionLostError(self.address, type(error).__name__) from error
        except kazoo_exceptions.KazooException as error:
            refused = f"ZooKeeper {self.address} refused {request.path}: {type(error).__name__}"
            raise TryAgainError(refused) from error

    def _asked(self, client: Any, request: NodeRequest) -> object:
        match request:
            case ReadNode(path):
                with contextlib.suppress(kazoo_exceptions.NoNodeError):
                    return client.get(path)[0] or b""
                return None
            case ListNode(path, watch):
                with contextlib.suppress(kazoo_exceptions.NoNodeError):
                    names = client.get_children(path, self._fired if watch else None)
                    return tuple(names)
                return None
            case MakeNode(path, data, ephemeral):
                with contextlib.suppress(kazoo_exceptions.NodeExistsError):
                    client.create(path, data, ephemeral=ephemeral, makepath=True)
                    return True
                return False
            case WriteNode(path, data):
                with contextlib.suppress(kazoo_exceptions.NoNodeError):
                    client.set(path, data)
                    return True
                return False
            case RemoveNode(path):
                with contextlib.suppress(kazoo_exceptions.NoNodeError):
                    client.delete(path)
                    return True
                return False

    def _fired(self, _event: object) -> None:  # in a thread of kazoo
        self._tell()

    def _state_changed(self, state: str) -> None:  # in a thread of kazoo
        if self._closed:
            return
        if state == KazooState.LOST:
            self.sessions += 1
            log.warning("zookeeper_session_lost address=%s", self.address)
        self._tell()

    def _tell(self) -> None:
        self.changes += 1
        for listener in tuple(self._listeners):
            listener()
