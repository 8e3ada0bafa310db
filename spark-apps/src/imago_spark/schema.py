"""The columns of a row, for Spark (DDL text) and for Arrow, which must match exactly."""

from __future__ import annotations

import difflib
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


class RowShape(Enum):
    """Whose names and types the columns have."""

    IMAGO = "imago"
    KAFKA = "kafka"


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
    "crc_ok": "boolean",
}
"""Every column, with its type in Spark."""

ALL: Final = tuple(KINDS)[:-1]
CORE: Final = ALL[:-1]
"""All but the map of properties, which is the dearest."""
DEFAULT: Final = ("key", "value", "topic", "shard", "queue", "offset", "store_time")
CHECKED: Final = "crc_ok"
"""Whether a row's body matches its checksum: of no set, but tables have it."""

_KAFKA_KINDS: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""What Spark's own source for Kafka has, in its order."""

HEADERS: Final = "headers"
_KINDS_OF: Final = {RowShape.IMAGO: KINDS, RowShape.KAFKA: _KAFKA_KINDS}
_SETS_OF: Final[Mapping[RowShape, Mapping[str, tuple[str, ...]]]] = {
    RowShape.IMAGO: {"default": DEFAULT, "core": CORE, "all": ALL},
    RowShape.KAFKA: {"default": tuple(_KAFKA_KINDS)[:-1], "all": tuple(_KAFKA_KINDS)},
}


def default_columns(shape: RowShape) -> tuple[str, ...]:
    """Return the columns of a query that says nothing."""
    return _SETS_OF[shape]["default"]


def parse_columns(text: str, shape: RowShape = RowShape.IMAGO) -> tuple[str, ...]:
    """Return the columns that names of columns and sets choose. ValueError: a name is none.

    `properties` alone stands for all, as it did when there was nothing else to choose.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if shape is RowShape.IMAGO and words == ["properties"]:
        return ALL
    by_lower = {name.lower(): name for name in _KINDS_OF[shape]}
    chosen: dict[str, None] = {}
    for word in words:
        if word not in by_lower and word not in _SETS_OF[shape]:
            raise ValueError(f"{word!r} is no column; {_hint(word, shape)}")
        chosen |= dict.fromkeys(_SETS_OF[shape].get(word) or (by_lower[word],))
    if not chosen:
        raise ValueError("names no column")
    return tuple(chosen)


def _hint(word: str, shape: RowShape) -> str:
    names, sets = tuple(_KINDS_OF[shape]), tuple(_SETS_OF[shape])
    close = difflib.get_close_matches(word, [*names, *sets], n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(names)}, and the sets {', '.join(sets)}"


def columns_of(
    names: Sequence[str], shape: RowShape = RowShape.IMAGO
) -> tuple[tuple[str, str], ...]:
    """Return name and Spark type of each column, in order."""
    return tuple((name, _KINDS_OF[shape][name]) for name in names)


def spark_schema(names: Sequence[str], shape: RowShape = RowShape.IMAGO) -> str:
    """Return the schema as DDL text."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns_of(names, shape))


def arrow_schema(names: Sequence[str], shape: RowShape = RowShape.IMAGO) -> pa.Schema:
    """Return the same schema as Arrow knows it."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
        _KAFKA_KINDS[HEADERS]: pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns_of(names, shape)])
