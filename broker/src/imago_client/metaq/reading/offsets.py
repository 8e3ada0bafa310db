"""Where a MetaQ consumer keeps its positions, since MetaQ brokers keep none."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Protocol

from imago_client.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imago_client.metaq.values import Partition


_CURE = "move it away to begin anew"


class OffsetStore(Protocol):
    """Keeps the positions of groups. Called now and then, never for every message."""

    def load(self, group: str, partition: Partition) -> int | None:
        """Return the position of a group in a partition, None if there is none."""

    def save(self, group: str, positions: Mapping[Partition, int]) -> None:
        """Keep the positions of a group; others of it stay as they are."""


class MemoryOffsets:
    """Positions that live as long as the process."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, Partition], int] = {}

    def load(self, group: str, partition: Partition) -> int | None:
        return self._positions.get((group, partition))

    def save(self, group: str, positions: Mapping[Partition, int]) -> None:
        for partition, position in positions.items():
            self._positions[group, partition] = position


class FileOffsets:
    """Positions in a JSON file, replaced as a whole: `{group: {topic: {server: {number: n}}}}`.

    One process may use a file at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._groups: dict[str, Any] = _read(path)

    def load(self, group: str, partition: Partition) -> int | None:
        found = self._servers(group, partition).get(str(partition.number))
        return found if isinstance(found, int) else None

    def save(self, group: str, positions: Mapping[Partition, int]) -> None:
        for partition, position in positions.items():
            self._servers(group, partition)[str(partition.number)] = position
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(self._groups, file, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)

    def _servers(self, group: str, partition: Partition) -> dict[str, Any]:
        topics = self._groups.setdefault(group, {})
        found: dict[str, Any] = topics.setdefault(partition.topic, {}).setdefault(
            partition.server, {}
        )
        return found


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UsageError(f"{path} is no offset file ({error}); {_CURE}") from None
    if not _is_table(value, depth=4):
        raise UsageError(f"{path} is no offset file; {_CURE}")
    found: dict[str, Any] = value
    return found


def _is_table(value: object, *, depth: int) -> bool:
    """Whether it is a position below so many levels of names."""
    if depth == 0:
        return isinstance(value, int)
    return isinstance(value, dict) and all(
        _is_table(one, depth=depth - 1) for one in value.values()
    )
