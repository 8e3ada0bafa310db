"""The table's commits as a Delta log, `PATH/_delta_log`, for readers that know Delta.

What belongs to the table is decided by its own commits, as ever. Each becomes one of Delta's once
its files are in their places, with its number as the version of an application transaction, which
Delta keeps with the table for ever. Whoever finds that number there has nothing to do: so a commit
whose run died in between is added by the next run, and never twice.
"""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from imago_spark.errors import TableError
from imago_spark.schema import CHECKED, CORE, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from imago_spark.pipelines.tables.commits import Commit, DataFile

LOG: Final = "_delta_log"
DAY: Final = "date"
_NO_DATE: Final = f"{DAY}=__HIVE_DEFAULT_PARTITION__"


def is_delta(path: Path) -> bool:
    """Whether a table has a Delta log."""
    return (path / LOG).is_dir()


def publish(
    path: Path, identity: str, commit: Commit, present: Callable[[], Sequence[DataFile]]
) -> None:
    """Add a commit to the Delta log, unless it is there; make the log with all files of the table.

    `identity`: of the table. TableError: the log has another table's commits, or was changed.
    """
    known = library(path)
    name = f"imago/{identity}"
    properties = known.CommitProperties(
        custom_metadata={"imago.commit": str(commit.number)},
        app_transactions=[known.Transaction(name, commit.number)],
    )
    try:
        if not is_delta(path):
            create(str(path), [_placed(path, file) for file in present()], properties)
            return
        table = known.DeltaTable(path)
        had = table.transaction_version(name)
        if had is None:
            raise TableError(f"{path / LOG}: is of another table, which was at this path before")
        actions = [_placed(path, one) for one in commit.files]
        actions += [_removed(name) for name in commit.removed]
        if had < commit.number and actions:
            table.create_write_transaction(
                actions, "append", schema(), [DAY], commit_properties=properties
            )
    except known.DeltaError as error:
        had = known.DeltaTable(path).transaction_version(name) if is_delta(path) else None
        if had is None or had < commit.number:  # else another who found it missing was first
            raise TableError(f"{path / LOG}: {error}") from error


def library(path: object) -> SimpleNamespace:
    """Return what is used of `deltalake`. TableError: it is not installed."""
    try:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise TableError(f"{path}: has a Delta log: pip install 'imago-mq[delta]'") from None
    return SimpleNamespace(
        CommitProperties=CommitProperties,
        DeltaTable=DeltaTable,
        Transaction=Transaction,
        DeltaError=DeltaError,
    )


def create(
    url: str,
    actions: list[Any],
    properties: Any,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: dict[str, str] | None = None,
) -> None:
    """Make a Delta table with these files."""
    from deltalake.transaction import create_table_with_add_actions

    create_table_with_add_actions(
        url,
        schema(),
        actions,
        mode="error",
        partition_by=[DAY],
        configuration=configuration,
        storage_options=storage_options,
        commit_properties=properties,
    )


def schema() -> Any:
    """Return the columns of a table of messages."""
    import pyarrow as pa
    from deltalake import Schema

    whole: pa.Schema = arrow_schema((*CORE, CHECKED))
    return Schema.from_arrow(whole.append(pa.field(DAY, pa.date32())))


def _values(name: str) -> dict[str, str | None]:
    """Return the day of a file's folder."""
    folder = name.split("/", maxsplit=1)[0]
    return {DAY: None if folder == _NO_DATE else folder.removeprefix(f"{DAY}=")}


def added(file: DataFile, changed_ms: int) -> Any:
    """Return the action that adds a file."""
    from deltalake.transaction import AddAction

    stats = json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.bytes, _values(file.path), changed_ms, True, stats)


def _placed(path: Path, file: DataFile) -> Any:
    return added(file, int((path / file.path).stat().st_mtime * 1000))


def _removed(name: str) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(name, True, int(time.time() * 1000), partition_values=_values(name))
