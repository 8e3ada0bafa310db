"""Brokers that are not ours and registered through us, as they are to stand in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.cluster import znodes
from imago_broker.cluster.edits import edits
from imago_broker.cluster.tree import TreeUnavailableError
from imago_broker.ports import CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.registry.cluster import ForeignBroker

ForeignKey = tuple[str, str, int]
"""Cluster, broker name and broker id."""


def foreign_key(key: ForeignKey) -> str:
    """Key of a foreign broker among what is wanted and what failed."""
    return f"foreign {key}"


class Foreigners:
    """Foreign brokers that are wanted in the registry, and which are not written yet."""

    def __init__(self, paths: Paths, tree: NodeTree, *, holder: str) -> None:
        """The holder is a name no other process has: it keeps our foreign brokers apart."""
        self._paths = paths
        self._tree = tree
        self._holder = holder
        self._wanted: dict[ForeignKey, ForeignBroker] = {}
        self._unwritten: set[ForeignKey] = set()

    @property
    def keys(self) -> list[str]:
        """Keys of all that are wanted."""
        return [foreign_key(key) for key in self._wanted]

    def want(self, key: ForeignKey, broker: ForeignBroker | None) -> str:
        """Want a foreign broker registered, or not; return the key to wait for."""
        if broker is None:
            self._wanted.pop(key, None)
        else:
            self._wanted[key] = broker
        self._unwritten.add(key)
        return foreign_key(key)

    def lost(self, seen: Iterable[ForeignBroker]) -> bool:
        """Whether what was read lacks any; those are written again."""
        lost = self._wanted.keys() - {broker.key for broker in seen}
        self._unwritten |= lost
        return bool(lost)

    def begin_session(self) -> None:
        """Forget what another session has written."""
        self._unwritten |= self._wanted.keys()

    async def settle(self, written: set[str], failures: dict[str, CoordinatorError]) -> None:
        """Write what is missing; add the nodes, and what cannot be written.

        TreeUnavailableError: the rest is for the next pass.
        """
        for key in sorted(self._unwritten):
            path = self._paths.foreign(key, self._holder)
            # Taken out first: what changes while we write must be found by the next pass.
            self._unwritten.discard(key)
            try:
                await self._write(path, self._wanted.get(key))
            except TreeUnavailableError:
                self._unwritten.add(key)
                raise
            except (ValueError, TypeError) as error:
                failures[foreign_key(key)] = CoordinatorError(str(error))
                self._wanted.pop(key, None)
            written |= {self._paths.foreigners, path}

    async def _write(self, path: str, broker: ForeignBroker | None) -> None:
        if broker is None:
            await edits.drop(self._tree, path)
        else:
            await edits.claim(self._tree, path, znodes.encode_foreign(broker))
