"""The tree of nodes in memory: the coordinator of a broker alone, and of tests.

A `MemoryEnsemble` is what a ZooKeeper ensemble is to others: shared by the sessions
(`MemoryTree`) of one process. It follows ZooKeeper's rules: parents must exist, ephemeral nodes
die with their session and have no children, a watch fires once, a transaction is done whole or
not at all. Answers come in a later turn of the event loop, as they would over a network.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.session.session import TreeSession
from imago_broker.cluster.tree import (
    NODE_BYTES_MAX,
    OPERATIONS_MAX,
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    TreeUnavailableError,
)
from imago_broker.model.registry.cluster import RegistryConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.cluster.settings import CoordinatorConfig


def memory_coordinator(
    config: CoordinatorConfig, ensemble: MemoryEnsemble | None = None
) -> TreeCoordinator:
    """Make a coordinator over an ensemble in this process.

    Without one the coordinator is alone: nobody could read MetaQ's tree, so none is kept, and
    nobody could take its place, so its lease lasts for ever.
    """
    if ensemble is None:
        return TreeCoordinator(replace(config, alone=True), MemoryTree(MemoryEnsemble()))
    return TreeCoordinator(config, MemoryTree(ensemble))


@dataclass(slots=True)
class _StoredNode:
    data: bytes
    created: int
    owner: int
    version: int = 0
    children: set[str] = field(default_factory=set)


class MemoryEnsemble:
    """All nodes, and who watches them."""

    def __init__(self) -> None:
        self._entries = {"/": _StoredNode(b"", 0, 0)}
        self._transaction = 0
        self._sessions = 0
        self._data_watches: defaultdict[str, set[MemoryTree]] = defaultdict(set)
        self._child_watches: defaultdict[str, set[MemoryTree]] = defaultdict(set)

    def open_session(self) -> int:
        """Return the id of a new session."""
        self._sessions += 1
        return self._sessions

    def close_session(self, tree: MemoryTree, session_id: int) -> None:
        """End a session: its watches, then its ephemeral nodes."""
        self.forget_watches(tree)
        mine = [path for path, entry in self._entries.items() if entry.owner == session_id]
        for path in mine:
            self.commit([Delete(path)], 0)

    def forget_watches(self, tree: MemoryTree) -> None:
        """Drop what a session watches."""
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, trees in watches.items() if tree in trees]:
                watches[path].discard(tree)

    def watch_count(self) -> int:
        """How many watches stand: a server keeps each of them in memory."""
        kinds = (self._data_watches, self._child_watches)
        return sum(len(trees) for watches in kinds for trees in watches.values())

    def get(self, path: str, watcher: MemoryTree | None) -> Node | None:
        """Read a node and leave a watch."""
        if watcher:
            self._data_watches[path].add(watcher)
        entry = self._entries.get(path)
        return Node(entry.data, entry.version, entry.created, entry.owner) if entry else None

    def children(self, path: str, watcher: MemoryTree | None) -> tuple[str, ...]:
        """Read the names below a node and leave a watch."""
        entry = self._entries.get(path)
        if entry is None:
            raise NoNodeError(path)
        if watcher:
            self._child_watches[path].add(watcher)
        return tuple(sorted(entry.children))

    def commit(self, operations: Sequence[Operation], session_id: int) -> None:
        """Do all operations, or none."""
        self._transaction += 1
        undo: list[Callable[[], object]] = []
        touched: list[str] = []
        try:
            for operation in operations:
                self._apply(operation, session_id, undo)
                if not isinstance(operation, Check):
                    touched.append(operation.path)
        except NodeError:
            for step in reversed(undo):
                step()
            raise
        for operation in operations:
            self._fire(operation)

    def _apply(
        self, operation: Operation, session_id: int, undo: list[Callable[[], object]]
    ) -> None:
        match operation:
            case Create():
                self._create(operation, session_id, undo)
            case SetData(path, data, version):
                entry = self._expect(path, version)
                before = (entry.data, entry.version)
                entry.data, entry.version = _checked(data), entry.version + 1
                undo.append(lambda: _restore(entry, before))
            case Delete(path, version):
                self._delete(path, self._expect(path, version), undo)
            case Check(path, version):
                self._expect(path, version)

    def _create(self, operation: Create, session_id: int, undo: list[Callable[[], object]]) -> None:
        path = operation.path
        parent_path = _split(path)[0]
        parent = self._entries.get(parent_path)
        if parent is None:
            raise NoNodeError(parent_path)
        if path in self._entries:
            raise NodeExistsError(path)
        if parent.owner:
            raise NodeError(f"{parent_path} is ephemeral and cannot have children")
        owner = session_id if operation.ephemeral else 0
        self._link(path, _StoredNode(_checked(operation.data), self._transaction, owner))
        undo.append(lambda: self._unlink(path))

    def _delete(self, path: str, entry: _StoredNode, undo: list[Callable[[], object]]) -> None:
        if entry.children:
            raise NotEmptyError(path)
        self._unlink(path)
        undo.append(lambda: self._link(path, entry))

    def _link(self, path: str, entry: _StoredNode) -> None:
        parent, name = _split(path)
        self._entries[parent].children.add(name)
        self._entries[path] = entry

    def _unlink(self, path: str) -> None:
        parent, name = _split(path)
        self._entries[parent].children.discard(name)
        del self._entries[path]

    def _expect(self, path: str, version: int) -> _StoredNode:
        entry = self._entries.get(path)
        if entry is None:
            raise NoNodeError(path)
        if version not in (-1, entry.version):
            raise BadVersionError(path)
        return entry

    def _fire(self, operation: Operation) -> None:
        if isinstance(operation, Check):
            return
        path = operation.path
        for tree in self._data_watches.pop(path, ()):
            tree.fire(path)
        if isinstance(operation, SetData):
            return
        gone = self._child_watches.pop(path, set()) if isinstance(operation, Delete) else set()
        for tree in gone:
            tree.fire(path)
        parent = _split(path)[0]
        for tree in self._child_watches.pop(parent, ()):
            tree.fire(parent)


class MemoryTree(TreeSession):
    """One session with a `MemoryEnsemble`. Tests suspend it and let it expire."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        super().__init__()
        self._ensemble = ensemble
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        self._session_id = self._ensemble.open_session()
        self._become(RegistryConnection.CONNECTED)

    async def stop(self) -> None:
        if self._session_id:
            self._ensemble.close_session(self, self._session_id)
            self._session_id = 0
            self._become(RegistryConnection.LOST)

    async def get(self, path: str, watch: bool = False) -> Node | None:
        await self._answer()
        return self._ensemble.get(path, self if watch else None)

    async def children(self, path: str, watch: bool = False) -> tuple[str, ...]:
        await self._answer()
        return self._ensemble.children(path, self if watch else None)

    async def sync(self) -> None:
        await self._answer()

    async def commit(self, operations: Sequence[Operation]) -> None:
        assert 0 < len(operations) <= OPERATIONS_MAX, "the caller cuts its batches"
        await self._answer()
        self._ensemble.commit(operations, self._session_id)

    def fire(self, path: str) -> None:
        """Have the watch's callbacks run in a later turn of the loop."""
        asyncio.get_running_loop().call_soon(self._fire_now, path)

    def suspend(self) -> None:
        """Cut the connection; the session and its nodes stay for now."""
        self._ensemble.forget_watches(self)
        self._become(RegistryConnection.SUSPENDED)

    def resume(self) -> None:
        """Give the connection back to the same session."""
        self._become(RegistryConnection.CONNECTED)

    def expire(self) -> None:
        """Let the session end, as after a long cut, and open a new one."""
        self._ensemble.close_session(self, self._session_id)
        self._become(RegistryConnection.LOST)
        self._session_id = self._ensemble.open_session()
        self._become(RegistryConnection.CONNECTED)

    def abandon(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.expire)

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self._connection is not RegistryConnection.CONNECTED:
            raise TreeUnavailableError(f"the session is {self._connection}")

    def _fire_now(self, path: str) -> None:
        if self._connection is RegistryConnection.CONNECTED:
            self._tell_watchers(path)


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def _checked(data: bytes) -> bytes:
    if len(data) > NODE_BYTES_MAX:
        raise NodeError(f"{len(data)} bytes, a node holds at most {NODE_BYTES_MAX}")
    return data


def _restore(entry: _StoredNode, before: tuple[bytes, int]) -> None:
    entry.data, entry.version = before
