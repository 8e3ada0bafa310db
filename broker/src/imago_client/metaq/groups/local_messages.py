"""Messages kept in a folder of this machine until somebody takes them: rejected, or not yet sent.

One file each, written beside and renamed, so that a crash leaves whole messages alone. The oldest
comes first. One process may use a folder at a time.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import logging
import os
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_client.errors import ClientError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from imago_client.core.metaq.nodes import PartitionId

log = logging.getLogger(__name__)

COUNT_MAX: Final = 500_000
"""Of one folder, as in the original."""
_SUFFIX, _NEW, _BAD = ".message", ".new", ".damaged"


class LocalStoreFullError(ClientError):
    """A folder holds as many messages as it may."""


@dataclass(frozen=True, slots=True)
class LocalMessage:
    """A message as it is kept."""

    topic: str
    payload: bytes
    attribute: str | None = None
    message_id: int = -1
    server: str = ""
    broker_id: int = -1
    partition: int = -1
    offset: int = -1
    next_offset: int = -1


class LocalMessages:
    """The messages of one name, such as `orders@g1`, in a folder of that name below `base`."""

    def __init__(self, base: Path, name: str, *, count_max: int = COUNT_MAX) -> None:
        self.folder = base / urllib.parse.quote(name, safe="@-_ ").replace(".", "%2E")
        self._count_max = count_max
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UsageError(
                f"{self.folder}: another process uses it; give each one a folder of its own"
            ) from None
        for left in self.folder.glob(f"*{_NEW}"):
            left.unlink()
        self._numbers = sorted(int(each.stem) for each in self.folder.glob(f"*{_SUFFIX}"))
        self._following = itertools.count(self._numbers[-1] + 1 if self._numbers else 0)

    def __len__(self) -> int:
        return len(self._numbers)

    def append(self, message: LocalMessage) -> None:
        """Keep a message behind the others. LocalStoreFullError: there is no room for it."""
        if len(self._numbers) >= self._count_max:
            raise LocalStoreFullError(
                f"{self.folder}: holds {len(self._numbers)} messages, the most that it may; they"
                " leave it when their broker takes them, or their handler"
            )
        number = next(self._following)
        beside = self.folder / f"{number:020d}{_NEW}"
        with beside.open("wb") as file:
            file.write(_encoded(message))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path(number))
        self._numbers.append(number)

    def __iter__(self) -> Iterator[tuple[int, LocalMessage]]:
        """Return what is there now, the oldest first; one that cannot be read is put aside."""
        for number in tuple(self._numbers):
            path = self._path(number)
            try:
                yield number, _decoded(path.read_bytes())
            except (OSError, ValueError, KeyError, TypeError):
                log.exception("local_message_damaged file=%s", path)
                self._numbers.remove(number)
                if path.exists():
                    path.replace(path.with_suffix(_BAD))

    def remove(self, number: int) -> None:
        """Forget a message that was taken."""
        self._path(number).unlink(missing_ok=True)
        self._numbers.remove(number)

    def close(self) -> None:
        """Let others use the folder."""
        self._lock.close()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:020d}{_SUFFIX}"


class KeptByPartition:
    """What partitions could not take, a folder each below `base`."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._stores: dict[PartitionId, LocalMessages] = {}

    def __len__(self) -> int:
        return sum(len(each) for each in self._stores.values())

    def open(self, partitions: Iterable[PartitionId]) -> None:
        """Take over what an earlier process has kept of some partitions."""
        known = set(names(self._base))
        for partition in partitions:
            if _partition_name(partition) in known:
                self._store(partition)

    @property
    def partitions(self) -> tuple[PartitionId, ...]:
        """Those of which something was kept."""
        return tuple(self._stores)

    def count(self, partition: PartitionId) -> int:
        """Return how many messages of one wait."""
        store = self._stores.get(partition)
        return len(store) if store is not None else 0

    def keep(self, partition: PartitionId, payload: bytes, attribute: str | None) -> None:
        """Keep a message behind the others of its partition."""
        kept = LocalMessage(
            partition.topic,
            bytes(payload),
            attribute,
            broker_id=partition.broker_id,
            partition=partition.number,
        )
        self._store(partition).append(kept)

    def of(self, partition: PartitionId) -> LocalMessages:
        """Return what is kept of one of `partitions`."""
        return self._stores[partition]

    def close(self) -> None:
        """Let others use the folders."""
        stores, self._stores = self._stores, {}
        for store in stores.values():
            store.close()

    def _store(self, partition: PartitionId) -> LocalMessages:
        found = self._stores.get(partition)
        if found is None:
            name = _partition_name(partition)
            found = self._stores[partition] = LocalMessages(self._base, name)
        return found


def _partition_name(partition: PartitionId) -> str:
    return f"{partition.topic}@{partition.name}"


def names(base: Path) -> list[str]:
    """Return the names of which there are messages below `base`."""
    if not base.is_dir():
        return []
    return sorted(
        urllib.parse.unquote(each.name) for each in base.iterdir() if any(each.glob(f"*{_SUFFIX}"))
    )


def _encoded(message: LocalMessage) -> bytes:
    fields = {name: getattr(message, name) for name in LocalMessage.__slots__}
    fields["payload"] = base64.b64encode(message.payload).decode()
    return json.dumps(fields).encode()


def _decoded(data: bytes) -> LocalMessage:
    fields = json.loads(data)
    fields["payload"] = base64.b64decode(fields["payload"])
    return LocalMessage(**fields)
