"""What each sink has published last, as a leader knows it, within bounds.

One user's sinks have bounds of their own, and where all of them together are too many the user
goes first that keeps most: nobody's publications push out what another one's sinks have decided.
Nor do those of commands, which publish once, push out a sink that goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from imago_wire.remoting.staged import ONCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_log.metadata.changes import Change

KIND: Final = "sink"
"""Of what is kept in the metadata: the newest micro-batch of each sink."""
SINKS_MAX: Final = 10_000
"""Of which that is kept; of a user those go first that have published nothing for longest."""
SINKS_BYTES_MAX: Final = 32 << 20
"""What that may take, in memory and in each snapshot of the metadata."""
USERS_PART: Final = 4
"""One user has at most this part of both."""
_COST: Final = 256
"""What a sink takes beside its id and what it wants to be told."""


class DecidedBatch(NamedTuple):
    """What a sink has published last."""

    batch: int
    said: str
    """What it wants to be told when it asks again."""
    at_ms: int
    user: str = ""
    """Of whose share it is."""


class _Share:
    """What is kept of one user, the oldest first."""

    def __init__(self) -> None:
        self.sinks: dict[str, DecidedBatch] = {}
        self.size = 0

    def add(self, sink: str, decided: DecidedBatch) -> None:
        self.drop(sink)
        self.sinks[sink] = decided
        self.size += _size(sink, decided)

    def drop(self, sink: str) -> None:
        known = self.sinks.pop(sink, None)
        if known is not None:
            self.size -= _size(sink, known)


def _size(sink: str, decided: DecidedBatch) -> int:
    return _COST + len(sink) + len(decided.said) + len(decided.user)


class DecidedBatches:
    """The newest micro-batch of each sink."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._users: dict[str, str] = {}
        """By sink."""
        self.size = 0
        """What all of them take, about."""

    def __len__(self) -> int:
        return len(self._users)

    def __iter__(self) -> Iterator[str]:
        return iter(self._users)

    def get(self, sink: str) -> DecidedBatch | None:
        """Return what a sink has published last."""
        user = self._users.get(sink)
        return None if user is None else self._shares[user].sinks[sink]

    def restore(self, noted: Mapping[str, Any]) -> None:
        """Take what the metadata have."""
        found = [(sink, _noted(value)) for sink, value in noted.items()]
        for sink, decided in sorted(found, key=lambda each: each[1].at_ms):
            self.note(sink, decided)

    def note(self, sink: str, decided: DecidedBatch) -> list[Change]:
        """Keep what was published; return what is to be changed in the metadata."""
        self._drop(sink)
        share = self._shares.setdefault(decided.user, _Share())
        share.add(sink, decided)
        self._users[sink] = decided.user
        self.size += _size(sink, decided)
        changes: list[Change] = [(KIND, sink, _form(decided))]
        part = USERS_PART
        while len(share.sinks) > SINKS_MAX // part or share.size > SINKS_BYTES_MAX // part:
            changes.append(self._drop_oldest(share))
        while len(self) > SINKS_MAX or self.size > SINKS_BYTES_MAX:
            changes.append(self._drop_oldest(max(self._shares.values(), key=lambda one: one.size)))
        return changes

    def forget_silent(self, before_ms: int) -> list[Change]:
        """Forget who has published nothing since; return the changes of the metadata."""
        silent = [
            sink
            for share in self._shares.values()
            for sink, last in share.sinks.items()
            if last.at_ms < before_ms
        ]
        for sink in silent:
            self._drop(sink)
        return [(KIND, sink, None) for sink in silent]

    def _drop_oldest(self, share: _Share) -> Change:
        older = list(share.sinks)[:-1]
        oldest = next((sink for sink in older if sink.startswith(ONCE_PREFIX)), None)
        oldest = oldest or next(iter(share.sinks))
        self._drop(oldest)
        return KIND, oldest, None

    def _drop(self, sink: str) -> None:
        user = self._users.pop(sink, None)
        if user is None:
            return
        share = self._shares[user]
        self.size -= share.size
        share.drop(sink)
        self.size += share.size
        if not share.sinks:
            del self._shares[user]


def _noted(value: Any) -> DecidedBatch:
    told = value if isinstance(value, dict) else {}
    return DecidedBatch(
        int(told.get("batch", -1)),
        str(told.get("said", "")),
        int(told.get("at", 0)),
        str(told.get("user", "")),
    )


def _form(decided: DecidedBatch) -> dict[str, Any]:
    return {
        "batch": decided.batch,
        "said": decided.said,
        "at": decided.at_ms,
        "user": decided.user,
    }
