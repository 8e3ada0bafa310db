"""Where the consumers of a balanced group keep how far they are; all members share one storage.

`ZooKeeperOffsets` and `SqlOffsets` have the form of the original's, so that its consumers go on
where ours stopped, and the other way; so has `LocalFileOffsets`, for one consumer alone. Whoever
needs another one writes a class with the methods of `OffsetStorage`.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from imago_client.core.metaq.nodes import PartitionId, StoredOffset, read_offset, write_offset
from imago_client.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from imago_client.metaq.groups.zookeeper import MetaqTree


_SELECT: Final = (
    "SELECT `offset`, msg_id FROM meta_topic_partition_group_offset"
    " WHERE topic = ? AND `partition` = ? AND group_id = ?"
)
_UPDATE: Final = (
    "UPDATE meta_topic_partition_group_offset SET `offset` = ?, msg_id = ?"
    " WHERE topic = ? AND `partition` = ? AND group_id = ?"
)
_INSERT: Final = (
    "INSERT INTO meta_topic_partition_group_offset (`offset`, msg_id, topic, `partition`, group_id)"
    " VALUES (?, ?, ?, ?, ?)"
)


class OffsetStorage(Protocol):
    """Keeps how far groups are. Called now and then, in a thread, never for every message."""

    def load(self, group: str, partition: PartitionId) -> StoredOffset | None:
        """Return how far a group is in a partition; None: nothing is stored."""

    def save(self, group: str, offsets: Mapping[PartitionId, StoredOffset]) -> None:
        """Keep how far a group is; other partitions of it stay as they are."""


class ZooKeeperOffsets:
    """Records in the tree, as the original's consumers read and write them."""

    def __init__(self, tree: MetaqTree) -> None:
        self._tree = tree

    def load(self, group: str, partition: PartitionId) -> StoredOffset | None:
        return self._tree.run(read_offset(self._tree.paths, group, partition))

    def save(self, group: str, offsets: Mapping[PartitionId, StoredOffset]) -> None:
        for partition, offset in offsets.items():
            self._tree.run(write_offset(self._tree.paths, group, partition, offset))


class LocalFileOffsets:
    """The original's JSON file, replaced as a whole. One process may use a file at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._groups = _read(path)

    def load(self, group: str, partition: PartitionId) -> StoredOffset | None:
        with self._lock:
            return self._groups.get(group, {}).get(partition)

    def save(self, group: str, offsets: Mapping[PartitionId, StoredOffset]) -> None:
        with self._lock:
            self._groups.setdefault(group, {}).update(offsets)
            self._write()

    def _write(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        value = {
            group: [
                {
                    "topic": partition.topic,
                    "partition": {"brokerId": partition.broker_id, "partition": partition.number},
                    "offset": offset.position,
                    "messageId": offset.message_id,
                    "modified": now_ms,
                }
                for partition, offset in sorted(offsets.items())
            ]
            for group, offsets in self._groups.items()
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(f"{self._path.name}.tmp.{os.getpid()}")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


def _read(path: Path) -> dict[str, dict[PartitionId, StoredOffset]]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(group): {
                PartitionId(
                    str(each["topic"]),
                    int(each["partition"]["brokerId"]),
                    int(each["partition"]["partition"]),
                ): StoredOffset(int(each["offset"]), int(each.get("messageId", -1)))
                for each in offsets
            }
            for group, offsets in value.items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        cure = "move it away to begin anew"
        raise UsageError(f"{path} is no offset file ({error!r}); {cure}") from None


class SqlConnection(Protocol):
    """What is used of a connection of Python's database interface (PEP 249)."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class SqlOffsets:
    """The original's table in any database with an interface of PEP 249, such as MySQL.

    `connect` opens a connection, one for each call; `placeholder` is how the driver writes one
    parameter: `%s` for MySQL, `?` for SQLite. `TABLE` says how the table is made.
    """

    TABLE: Final = (
        "CREATE TABLE IF NOT EXISTS meta_topic_partition_group_offset ("
        "topic VARCHAR(255) NOT NULL, `partition` VARCHAR(64) NOT NULL,"
        " group_id VARCHAR(255) NOT NULL, `offset` BIGINT NOT NULL, msg_id BIGINT NOT NULL,"
        " PRIMARY KEY (topic, `partition`, group_id))"
    )

    def __init__(self, connect: Callable[[], SqlConnection], *, placeholder: str = "%s") -> None:
        self._connect = connect
        self._select, self._update, self._insert = (
            text.replace("?", placeholder) for text in (_SELECT, _UPDATE, _INSERT)
        )

    def load(self, group: str, partition: PartitionId) -> StoredOffset | None:
        with self._cursor() as cursor:
            found = self._find(cursor, group, partition)
        return StoredOffset(int(found[0]), int(found[1])) if found else None

    def save(self, group: str, offsets: Mapping[PartitionId, StoredOffset]) -> None:
        with self._cursor() as cursor:
            for partition, offset in offsets.items():
                known = self._find(cursor, group, partition)
                values = (offset.position, offset.message_id)
                cursor.execute(
                    self._update if known else self._insert, (*values, *_key(group, partition))
                )

    def _find(self, cursor: Any, group: str, partition: PartitionId) -> Sequence[Any] | None:
        cursor.execute(self._select, _key(group, partition))
        found: Sequence[Any] | None = cursor.fetchone()
        return found

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[Any]:
        connection = self._connect()
        try:
            yield connection.cursor()
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()


def _key(group: str, partition: PartitionId) -> tuple[str, str, str]:
    return partition.topic, partition.name, group
