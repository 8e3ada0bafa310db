"""A session with any kind of tree: its state, and the listeners of it and of watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import RegistryConnection

if TYPE_CHECKING:
    from collections.abc import Callable


class TreeSession:
    """The part of a `NodeTree` that has nothing to do with where the nodes are."""

    def __init__(self) -> None:
        self._session_id = 0
        self._connection = RegistryConnection.LOST
        self._connection_callbacks: list[Callable[[RegistryConnection], None]] = []
        self._watch_callbacks: list[Callable[[str], None]] = []

    @property
    def session_id(self) -> int:
        """Id of the session; 0 before the first."""
        return self._session_id

    @property
    def connection(self) -> RegistryConnection:
        """State of the session."""
        return self._connection

    def on_connection(self, callback: Callable[[RegistryConnection], None]) -> None:
        """Call back with every change of state."""
        self._connection_callbacks.append(callback)

    def on_watch(self, callback: Callable[[str], None]) -> None:
        """Call back with the path of every watch that fires."""
        self._watch_callbacks.append(callback)

    def _tell_watchers(self, path: str) -> None:
        for callback in self._watch_callbacks:
            callback(path)

    def _become(self, connection: RegistryConnection) -> None:
        if connection is not self._connection:
            self._connection = connection
            for callback in self._connection_callbacks:
                callback(connection)
