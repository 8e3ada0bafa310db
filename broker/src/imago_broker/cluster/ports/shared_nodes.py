"""Nodes that many processes share: changed by compare and set, and read as new as they are."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from imago_broker.cluster import znodes
from imago_broker.cluster.edits import edits
from imago_broker.cluster.tree import NodeError, TreeUnavailableError
from imago_broker.ports import CoordinatorError, CoordinatorUnavailableError, RegistryDamagedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.cluster.edits.shared import Edit
    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.snapshot_reader import SnapshotReader
    from imago_broker.cluster.tree import NodeTree


class SharedNodes:
    """What is done to one shared node, in the port's terms and within the operation time-out."""

    def __init__(self, config: CoordinatorConfig, tree: NodeTree, reader: SnapshotReader) -> None:
        self._timeout_seconds = config.operation_timeout_ms / 1000
        self._tree = tree
        self._reader = reader

    async def change(self, path: str, edit: Edit) -> None:
        """Compare and set a node, then read it back."""
        async with self.answered(path):
            await edits.change(self._tree, path, edit)
            await self._reader.refresh({path})

    async def read_now(self, path: str) -> None:
        """Bring a node of the snapshot up to what the ensemble's leader has."""
        async with self.answered(path):
            await self._tree.sync()
            await self._reader.refresh({path})
        if reason := self._reader.view.refused.get(path):
            raise RegistryDamagedError(path, reason)

    @asynccontextmanager
    async def answered(self, path: str) -> AsyncIterator[None]:
        """Say in the port's terms what became of work on a node, and give it an end."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                yield
        except (TimeoutError, TreeUnavailableError) as error:
            raise CoordinatorUnavailableError(f"{path}: {error}") from error
        except znodes.GarbageError as error:
            raise RegistryDamagedError(error.path, error.reason) from error
        except (NodeError, ValueError, TypeError) as error:
            raise CoordinatorError(f"{path}: {error}") from error
