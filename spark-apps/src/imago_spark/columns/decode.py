"""The answer to a pull as Arrow batches: the columns that were asked for, and nothing else.

Records become columns in one compiled pass, or with NumPy where nothing is compiled, or where it
finds a record that is not as it should be. What belongs to the whole answer is added here, and
compressed bodies are inflated.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from imago_spark.columns import _rows_py
from imago_spark.columns.gather import as_text
from imago_spark.columns.inflating import inflated_runs
from imago_spark.columns.property_columns import read_properties
from imago_spark.schema import CHECKED, arrow_schema
from imago_wire.compiled import compiled_twins
from imago_wire.records.stored import host_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from imago_client.message_queue import MessageQueue

    Batch: TypeAlias = tuple[int, dict[str, pa.Array], list[int]]
    """The number of rows, their columns, and which of them have a compressed body."""

BATCH_ROWS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 2 << 20
"""Of records, in one Arrow batch."""
INFLATED_BYTES_MAX: Final = 64 << 20
"""For all compressed bodies of one batch together; a body that alone takes more has no value."""
_REPEATED: Final = 1 << 14
"""Rows of a kept column of one text."""

_read_rows: Callable[..., Any] | None = compiled_twins(
    "imago_spark.columns._rows_c", ["read_rows"]
).get("read_rows")  # type: ignore[assignment]  # it is a function


def decode_batches(
    answer: bytes,
    queue: MessageQueue,
    columns: Sequence[str],
    *,
    end_offset: int,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a pull's answer below `end_offset`.

    CorruptBatchError: it is not whole records. A batch has rows and bytes that Spark's JVM likes;
    fewer if inflated bodies exceed `inflated_bytes_max`.
    """
    schema = arrow_schema(columns)
    constant: dict[str, Callable[[int], pa.Array]] = {
        "topic": lambda count: _repeated(queue.topic, count),
        "shard": lambda count: _repeated(queue.shard, count),
        "queue": lambda count: pa.repeat(pa.scalar(queue.queue_id, pa.int32()), count),
    }
    read = frozenset(columns) - constant.keys()
    for count, found, compressed in _batches(answer, end_offset, read):
        arrays = [found[one] if one in found else constant[one](count) for one in columns]
        whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if not compressed:
            yield whole
            continue
        at, values = schema.get_field_index("value"), found["value"].to_pylist()
        flags = found["sys_flag"].to_numpy()
        for start, inflated in inflated_runs(compressed, values, flags, inflated_bytes_max):
            part = whole.slice(start, len(inflated))
            yield part.set_column(at, schema.field(at), pa.array(inflated, pa.binary()))


def _batches(answer: bytes, end_offset: int, columns: Collection[str]) -> Iterator[Batch]:
    wanted = frozenset(columns)
    if "value" in wanted:
        wanted |= {"sys_flag"}  # says how it is compressed
    at = 0
    while _read_rows is not None and at < len(answer):
        read = _read_rows(answer, at, end_offset, BATCH_ROWS_MAX, BATCH_BYTES_MAX, wanted)
        if read is None:
            break
        at, count, buffers, compressed = read
        if count:
            yield count, {name: _column(name, count, buffers[name]) for name in wanted}, compressed
    if at < len(answer):
        yield from _rows_py.read_batches(answer, at, end_offset, BATCH_ROWS_MAX, wanted)


_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_TIME: Final = pa.timestamp("us", tz="UTC")
_FIXED: Final = {
    "offset": _LONG,
    "metaq_offset": _LONG,
    "flag": _INT,
    "sys_flag": _INT,
    "born_time": _TIME,
    "store_time": _TIME,
    "reconsume_times": _INT,
    "body_crc": _INT,
    CHECKED: pa.bool_(),
}


def _column(name: str, count: int, filled: tuple[Any, ...]) -> pa.Array:
    """Return the buffers that the compiled pass has filled as a column."""
    if name == "born_host":
        hosts, rows = filled
        texts = pa.array([host_text(host) for host in hosts], type=pa.string())
        if len(texts) == 1:
            return pa.repeat(texts[0], count)
        return texts.take(pa.Array.from_buffers(_INT, count, [None, pa.py_buffer(rows)]))
    present, borders, data, nulls, is_text = filled
    bits = None if present is None else pa.py_buffer(present)
    if borders is None:
        return pa.Array.from_buffers(_FIXED[name], count, [bits, pa.py_buffer(data)], nulls)
    kind = pa.string() if is_text else pa.binary()
    buffers = [bits, pa.py_buffer(borders), pa.py_buffer(data)]
    found = pa.Array.from_buffers(kind, count, buffers, nulls)
    if name == "properties":
        return read_properties(found).maps()
    return found if is_text or name == "value" else as_text(found)


def _repeated(text: str, count: int) -> pa.Array:
    if count > _REPEATED:
        return pa.repeat(text, count)
    return _kept(text).slice(0, count)


@lru_cache(maxsize=16)
def _kept(text: str) -> pa.Array:
    return pa.repeat(text, _REPEATED)
