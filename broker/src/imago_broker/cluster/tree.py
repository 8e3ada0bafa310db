"""The tree of nodes under the registry, as a Protocol: what ZooKeeper offers.

Nodes have data, a version that counts changes, and children. An ephemeral node lives as long as
the session that made it. A watch fires once, after the next change of what was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.model.registry.cluster import RegistryConnection


NODE_BYTES_MAX = 1_000_000
"""ZooKeeper refuses more than 1 MiB of request by default (jute.maxbuffer)."""
OPERATIONS_MAX = 100
"""Operations in one transaction."""


class NodeError(Exception):
    """An operation on a node was refused; nothing of its transaction was done."""


class NoNodeError(NodeError):
    """The node, or the parent of a new one, does not exist."""


class NodeExistsError(NodeError):
    """A node of this path exists already."""


class BadVersionError(NodeError):
    """The node was changed since it was read: read again."""


class NotEmptyError(NodeError):
    """The node has children."""


class TreeUnavailableError(Exception):
    """No answer; whether the operation was done is unknown: look again before the next."""


class TreeConfigurationError(Exception):
    """The tree answers, and what it says cannot go together with our settings."""


@dataclass(frozen=True, slots=True)
class Node:
    """What was read of a node."""

    data: bytes
    version: int
    created: int
    """Transaction id of the creation (czxid)."""
    owner: int
    """Session id of an ephemeral node; 0 for a persistent one."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = -1
    """Expected version; -1 = any."""


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a transaction that only asks for the version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class NodeTree(Protocol):
    """One session with the tree. All methods and callbacks belong to the event-loop thread."""

    @property
    def session_id(self) -> int:
        """Id of the session; changes when a new one had to be opened. 0 before the first."""

    @property
    def connection(self) -> RegistryConnection:
        """State of the session."""

    def on_connection(self, callback: Callable[[RegistryConnection], None]) -> None:
        """Call back with every change of state."""

    def on_watch(self, callback: Callable[[str], None]) -> None:
        """Call back with the path of every watch that fires.

        A lost connection ends all watches without a call: read everything again after it.
        """

    async def start(self) -> None:
        """Open the session; TreeUnavailableError when nothing answers in time."""

    async def stop(self) -> None:
        """Close the session, which removes its ephemeral nodes; safe to call twice."""

    async def get(self, path: str, watch: bool = False) -> Node | None:
        """Read a node, or None; the watch fires on change, creation or deletion."""

    async def children(self, path: str, watch: bool = False) -> tuple[str, ...]:
        """Names of the children, sorted. NoNodeError (and no watch) when the node is missing."""

    async def sync(self) -> None:
        """Return once whatever was written anywhere before this call is seen by our reads.

        The answer comes from the ensemble's leader, so it shows that our session lives: an
        ensemble's other servers answer reads for a while after they were cut off from it.
        """

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Do all of at most OPERATIONS_MAX operations, or none and raise what one of them said.

        The error's text begins with the path of the operation that was refused.
        """

    def abandon(self) -> None:
        """End the session at once, from any thread; a new one is opened when the loop runs."""
