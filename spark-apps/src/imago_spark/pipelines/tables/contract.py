"""What a table is, for ever: the application that writes it, and the fields that its rows have.

`PATH/_imago/contract.json`: `{"application": "parse", "fields": {"id": "bigint"}, "format": 1}`.
Tables of ingest have none: their columns are those of messages. Fields may be added, never changed
or taken away: who reads the table relies on them.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from imago_spark.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_spark.pipelines.tables.table import TableWriter

INGEST: Final = "ingest"
FORMAT: Final = 1
_CURE: Final = "give it a new path"


def claim(table: TableWriter, application: str, fields: Mapping[str, str]) -> None:
    """Make it, or add fields to it. TableError: the table is another application's, or differs."""
    path = table.path / "_imago" / "contract.json"
    found = check_application(table, application)
    last = table.read_last()
    had = found["fields"] if last and last.rows else {}  # nobody relies on a table without rows
    for name, kind in had.items():
        if fields.get(name) != kind:
            now = f"is {fields[name]}" if name in fields else "is left out"
            raise TableError(
                f"{table.path}: field {name!r} was {kind} and now {now}: whoever reads the table"
                f" relies on it; only add fields, or {_CURE}"
            )
    if application != INGEST and dict(fields) != found["fields"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        text = {"application": application, "fields": dict(fields), "format": FORMAT}
        draft.write_text(json.dumps(text), encoding="utf-8")
        draft.replace(path)


def check_application(table: TableWriter, application: str) -> dict[str, Any]:
    """Return what stands of a table, or would. TableError: it is another application's."""
    found = _found(table) or {
        "application": INGEST if table.read_last() else application,
        "fields": {},
    }
    if found["application"] != application:
        raise TableError(
            f"{table.path}: is a table of {found['application']}, not of {application}; {_CURE}"
        )
    return found


def fields_of(table: TableWriter) -> dict[str, str]:
    """Return what a table's rows have beside the columns of messages; nothing: they have a body."""
    return dict((_found(table) or {"fields": {}})["fields"])


def application_of(table: TableWriter) -> str:
    """Return which application writes a table."""
    return str((_found(table) or {"application": INGEST})["application"])


def _found(table: TableWriter) -> dict[str, Any] | None:
    path = table.path / "_imago" / "contract.json"
    try:
        return _read(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise TableError(f"{path}: {error!r}") from error


def _read(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']!r}, this version knows {FORMAT}")
    return {"application": str(found["application"]), "fields": dict(found["fields"])}
