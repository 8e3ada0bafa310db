"""The columns of a row, for Spark (DDL text) and for Arrow, which must match exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_spark.options import Columns

if TYPE_CHECKING:
    import pyarrow as pa

_CORE: Final = (
    ("topic", "string"),
    ("shard", "string"),
    ("queue", "int"),
    ("offset", "long"),
    ("metaq_offset", "long"),
    ("key", "string"),
    ("tags", "string"),
    ("value", "binary"),
    ("flag", "int"),
    ("sys_flag", "int"),
    ("born_time", "timestamp"),
    ("store_time", "timestamp"),
    ("born_host", "string"),
    ("msg_id", "string"),
    ("reconsume_times", "int"),
    ("body_crc", "int"),
)
_PROPERTIES: Final = ("properties", "map<string,string>")


def columns_of(columns: Columns) -> tuple[tuple[str, str], ...]:
    """Return name and Spark type of each column, in order."""
    return (*_CORE, _PROPERTIES) if columns is Columns.PROPERTIES else _CORE


def spark_schema(columns: Columns) -> str:
    """Return the schema as DDL text."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns_of(columns))


def arrow_schema(columns: Columns) -> pa.Schema:
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
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns_of(columns)])
