"""Keeps the snapshot of the registry up to date: what watches have told of is read again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.cluster.mirror import Mirror
from imago_broker.cluster.session.leased_session import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.cluster.desired.keeper import Keeper
    from imago_broker.cluster.session.wakeups import Wake
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.registry.cluster import ClusterView


class SnapshotReader:
    """Owns the snapshot; callers that want a newer one call `refresh`."""

    def __init__(
        self, paths: Paths, tree: NodeTree, *, keeper: Keeper, read: Wake, write: Wake
    ) -> None:
        """`read` wakes this reader; `write` is set where the snapshot lacks what we want there."""
        self._mirror = Mirror(paths, tree)
        self._keeper = keeper
        self._read = read
        self._write = write
        self._callbacks: list[Callable[[ClusterView], None]] = []
        self._dirty: set[str] = set()
        self._given = 0
        """Changes by which we may have given leadership away, until the state is read again."""
        self._lock = asyncio.Lock()

    @property
    def view(self) -> ClusterView:
        """The last snapshot."""
        return self._mirror.view

    def on_change(self, callback: Callable[[ClusterView], None]) -> None:
        """Have the callback told each new snapshot."""
        self._callbacks.append(callback)

    def watch_fired(self, path: str) -> None:
        """Have a node read again."""
        self._dirty.add(path)
        self._read.set()

    def read_everything(self) -> None:
        """Have all nodes read again: any watch may have been missed."""
        self._dirty |= self._mirror.everything()
        self._read.set()

    def have_read(self, paths: set[str]) -> None:
        """Count nodes as read that a refresh which begins now reads."""
        self._dirty -= paths

    def leadership_given(self) -> None:
        """Have the keeper released once the shard's state has been read again."""
        self._given += 1

    async def step(self) -> None:
        """Read what watches have told of."""
        dirty, self._dirty = self._dirty, set()
        try:
            await self.refresh(dirty)
        except BaseException:
            self._dirty |= dirty
            raise

    async def refresh_everything(self) -> None:
        """Read all nodes into the snapshot."""
        await self.refresh(self._mirror.everything())

    async def refresh_states(self) -> None:
        """Read the shards' states into the snapshot."""
        await self.refresh(self._mirror.state_paths())

    async def refresh(self, paths: set[str]) -> None:
        """Read these nodes into the snapshot."""
        # One reader at a time: an older answer must never overwrite a newer one.
        async with self._lock:
            given = self._given if any(path.endswith("/state") for path in paths) else 0
            changed = await self._mirror.refresh(paths)
            self._given -= given
        view = self._mirror.view
        # Not only when it changed: what we wrote may be gone again before we first read it.
        if self._keeper.doubts(view, self._mirror.buckets):
            self._write.set()
        if (due_ms := self._keeper.due_ms) is not None:
            self._write.later(due_ms / 1000)
        for _ in range(given):
            self._keeper.release()
        if changed:
            tell(self._callbacks, view)
