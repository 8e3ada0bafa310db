"""The options of a sink, and the columns that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from imago_client.config import parse_addresses
from imago_client.naming import check_name
from imago_spark.access_options import ACCESS_NAMES, read_access
from imago_spark.errors import OptionError
from imago_spark.options import (
    RUN_NAMES,
    ConnectionOptions,
    FencedRun,
    choice,
    count_of,
    epoch_of,
    read_given,
    read_run,
    refuse_unknown,
    seconds_of,
)
from imago_spark.schema import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_spark.options import Option

SEND_BYTES_MAX: Final = 2 << 20
_SEND_BYTES_MIN: Final = 4 << 10


class Delivery(Enum):
    """What a repeated task does with rows that it has sent before."""

    IDEMPOTENT = "idempotent"
    AT_LEAST_ONCE = "atLeastOnce"
    TRANSACTION = "transaction"
    """Readers see what a micro-batch has for a shard at once, and once."""


class QueueBy(Enum):
    """What selects a row's queue."""

    KEY = "key"
    ROUND_ROBIN = "roundRobin"
    COLUMN = "column"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(ConnectionOptions):
    """One sink's options."""

    topic: str | None = None
    sink_id: str | None = None
    sink_batch: int = 0
    """Of a batch write: which of the sink's batches it is, as a stream numbers its own."""
    delivery: Delivery = Delivery.IDEMPOTENT
    rows_per_second: int | None = None
    """Of the whole query, which then has one partition; None: as fast as it goes."""
    send_bytes: int = 1 << 20
    queue_by: QueueBy = QueueBy.KEY
    delivery_timeout_s: float = 120.0
    run: FencedRun | None = None
    """Under which each task asks, before it sends anything, whether it may."""


_STREAMS_OWN: Final = frozenset({"checkpointlocation"})
"""Spark passes its own option on."""

_TAKEN: Final = {
    "topic": ("string",),
    "key": ("string",),
    "tags": ("string",),
    "value": ("binary", "string"),
    "flag": ("int",),
    "shard": ("string",),
    "queue": ("int",),
    "properties": ("map<string,string>",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp",),
}
_LATER: Final = ("delayLevel", "deliverAt")
"""Of rows that wait."""
_PASSED_OVER: Final = KINDS.keys() - _TAKEN.keys()
"""What brokers give a message anew: a source's rows can be written as they are."""


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Return the options of a map whose keys may be in any case. OptionError says what is wrong."""
    given = {name.lower(): value for name, value in options.items()}
    ours = {name for name in given if name not in _STREAMS_OWN}
    refuse_unknown(ours, (*_OPTIONS, *RUN_NAMES, *ACCESS_NAMES))
    if not given.get("bootstrap"):
        raise OptionError("option 'bootstrap' is missing: add .option(\"bootstrap\", …)")
    if "sinkbatch" in given and not given.get("sinkid"):
        raise OptionError(
            "option 'sinkBatch': numbers batches of a sink: add .option(\"sinkId\", …)"
        )
    return SinkOptions(**read_given(given, _OPTIONS), run=read_run(given), **read_access(given))


def check_columns(options: SinkOptions, columns: Sequence[tuple[str, str]]) -> None:
    """Refuse rows that cannot become messages; each column is a name and a Spark type."""
    kinds = dict(columns)
    for name, kind in kinds.items():
        if name in _PASSED_OVER:
            continue
        if name not in _TAKEN:
            raise OptionError(
                f"column {name!r} has no place in a message: drop it, or put it into value or"
                f" properties; known are {', '.join(_TAKEN)}"
            )
        if kind not in _TAKEN[name]:
            wanted = " or ".join(_TAKEN[name])
            raise OptionError(f"column {name!r} is {kind}, must be {wanted}: cast it")
    _check_delivery(options, kinds)
    if "value" not in kinds:
        raise OptionError("column 'value' is missing: it becomes the message's body")
    if "topic" not in kinds and options.topic is None:
        raise OptionError("no topic: set .option(\"topic\", …) or add a column 'topic'")
    if options.queue_by is QueueBy.COLUMN and not {"shard", "queue"} <= kinds.keys():
        raise OptionError("option 'queueBy': column needs the columns 'shard' and 'queue'")


def _check_delivery(options: SinkOptions, kinds: Mapping[str, str]) -> None:
    if options.delivery is Delivery.IDEMPOTENT and (late := kinds.keys() & set(_LATER)):
        raise OptionError(
            f"column {min(late)!r}: a row that waits is not numbered where it is delivered: add"
            ' .option("delivery", "transaction"), or atLeastOnce'
        )
    if options.delivery is Delivery.TRANSACTION and options.rows_per_second is not None:
        raise OptionError(
            "option 'rowsPerSecond': a transaction is delivered at once: take another delivery"
        )


def _topic(text: str) -> str:
    check_name("topic", text.strip())
    return text.strip()


def _sink_id(text: str) -> str:
    if not 0 < len(text) <= 255:
        raise ValueError("must have 1 to 255 characters")
    return text


def _delivery(text: str) -> Delivery:
    return choice(Delivery, text)


def _send_bytes(text: str) -> int:
    size = count_of(text)
    if not _SEND_BYTES_MIN <= size <= SEND_BYTES_MAX:
        raise ValueError(f"{size}, must be {_SEND_BYTES_MIN} to {SEND_BYTES_MAX}")
    return size


def _queue_by(text: str) -> QueueBy:
    return choice(QueueBy, text)


_OPTIONS: Final[Mapping[str, Option]] = {
    "bootstrap": ("bootstrap", parse_addresses),
    "topic": ("topic", _topic),
    "sinkId": ("sink_id", _sink_id),
    "sinkBatch": ("sink_batch", epoch_of),
    "delivery": ("delivery", _delivery),
    "rowsPerSecond": ("rows_per_second", count_of),
    "sendBytes": ("send_bytes", _send_bytes),
    "queueBy": ("queue_by", _queue_by),
    "timeout": ("timeout_s", seconds_of),
    "deliveryTimeout": ("delivery_timeout_s", seconds_of),
}
"""By name: the field of `SinkOptions`, which has the default, and what reads the text."""
