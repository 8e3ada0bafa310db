"""How groups are to read topics, as administrators say: by pulls or by POP."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imago_log.store import MessageStore

KIND = "request-mode"
PULL, POP = "PULL", "POP"


class RequestMode(NamedTuple):
    """How one group reads one topic."""

    mode: str = PULL
    share_queues: int = -1
    """How many other members' queues each member pops too; below 1: all members pop all."""


class RequestModes:
    """All modes that were set; in the log's metadata, so of whoever leads."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def get(self, group: str, topic: str) -> RequestMode:
        """Return what holds: pulls, unless somebody has said otherwise."""
        mode, _, share = str(self._stored.get(f"{group}@{topic}", "")).partition(" ")
        if mode not in (PULL, POP):
            return RequestMode()
        return RequestMode(mode, int(share) if share.removeprefix("-").isdigit() else -1)

    def all(self) -> Iterator[tuple[str, str, RequestMode]]:
        """Yield group, topic and mode of all that were set."""
        for name in list(self._stored):
            group, _, topic = name.partition("@")
            yield group, topic, self.get(group, topic)

    def set(self, group: str, topic: str, mode: RequestMode) -> None:
        """Have a group read a topic so from now on."""
        if self.get(group, topic) != mode:
            text = f"{mode.mode} {mode.share_queues}"
            self._store.put_meta([(KIND, f"{group}@{topic}", text)])

    def forget(self, gone: Iterable[tuple[str, str, int]]) -> None:
        """Forget those of queues of deleted groups and topics."""
        self._remove(dict.fromkeys(f"{group}@{topic}" for group, topic, _ in gone))

    def forget_topic(self, topic: str) -> None:
        """Forget those of a deleted topic, also of groups that have read nothing of it."""
        self._remove([name for name in self._stored if name.partition("@")[2] == topic])

    def _remove(self, names: Iterable[str]) -> None:
        rows = [(KIND, name, None) for name in names if name in self._stored]
        if rows and self._store.leading:
            self._store.put_meta(rows)

    @property
    def _stored(self) -> Mapping[str, object]:
        return self._store.meta(KIND)
