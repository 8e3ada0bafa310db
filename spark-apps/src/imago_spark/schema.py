"""The columns of a row, for Spark (DDL text) and for Arrow, which must match exactly."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

KINDS: Final[Mapping[str, str]] = {
    "topic": "string",
    "shard": "string",
    "queue": "int",
    "offset": "long",
    "metaq_offset": "long",
    "key": "string",
    "tags": "string",
    "value": "binary",
    "flag": "int",
    "sys_flag": "int",
    "born_time": "timestamp",
    "store_time": "timestamp",
    "born_host": "string",
    "msg_id": "string",
    "reconsume_times": "int",
    "body_crc": "int",
    "properties": "map<string,string>",
}
"""Every column, with its type in Spark."""

ALL: Final = tuple(KINDS)
CORE: Final = ALL[:-1]
"""All but the map of properties, which is the dearest."""
DEFAULT: Final = ("key", "value", "topic", "shard", "queue", "offset", "store_time")
_SETS: Final = {"default": DEFAULT, "core": CORE, "all": ALL}


def parse_columns(text: str) -> tuple[str, ...]:
    """Return the columns that names of columns and sets choose. ValueError: a name is none.

    `properties` alone stands for all, as it did when there was nothing else to choose.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if words == ["properties"]:
        return ALL
    chosen: dict[str, None] = {}
    for word in words:
        if word not in KINDS and word not in _SETS:
            raise ValueError(f"{word!r} is no column; {_hint(word)}")
        chosen |= dict.fromkeys(_SETS.get(word, (word,)))
    if not chosen:
        raise ValueError("names no column")
    return tuple(chosen)


def _hint(word: str) -> str:
    close = difflib.get_close_matches(word, [*KINDS, *_SETS], n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(ALL)}, and the sets {', '.join(_SETS)}"


def columns_of(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return name and Spark type of each column, in order."""
    return tuple((name, KINDS[name]) for name in names)


def spark_schema(names: Sequence[str]) -> str:
    """Return the schema as DDL text."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns_of(names))


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Return the same schema as Arrow knows it."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns_of(names)])
