"""The options of `format("imago")`: parse a map of texts into a checked value."""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from imago_client.config import parse_addresses
from imago_client.errors import UsageError
from imago_client.message_queue import MessageQueue
from imago_client.naming import check_name
from imago_spark.access_options import ACCESS_NAMES, read_access, refuse_secrets
from imago_spark.choosing.times import Times, parse_times
from imago_spark.choosing.topic_choice import TopicChoice
from imago_spark.errors import OptionError
from imago_spark.offsets import each_once, whole_of
from imago_spark.schema import DEFAULT, HEADERS, RowShape, default_columns, parse_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Option = tuple[str, Callable[[str], Any]]
    """The field that an option sets, and what reads its text."""

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

FETCH_MESSAGES_MAX: Final = 10_000
FETCH_BYTES_MAX: Final = 4 << 20
FETCH_BYTES: Final = (2 << 20) - (64 << 10)
"""Larger answers cost brokers twice as much: they are made in memory that is fresh each time."""
_FETCH_BYTES_MIN: Final = 64 << 10
_SPLIT_BYTES_MIN: Final = 64 << 10
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h)", re.IGNORECASE)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_EPOCH_DIGITS: Final = 18
"""What brokers read of one."""


class OnDataLoss(Enum):
    """What to do when offsets that the query needs no longer exist."""

    FAIL = "fail"
    SKIP = "skip"


class TimeNotFound(Enum):
    """Where a queue begins that has no message of the starting time or later."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class FencedRun:
    """One run of a pipeline, with the epoch under which it may write."""

    pipeline: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How the cluster is reached, from the driver and from every executor."""

    bootstrap: tuple[str, ...]
    timeout_s: float = 10.0
    tls_ca_file: str | None = None
    """Authorities of the cluster's certificates; None: no TLS."""
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    user: str | None = None
    """Whose requests these are; None: nobody's."""
    password_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(ConnectionOptions):
    """One query's options."""

    topics: tuple[str, ...] = ()
    """Given by name; or else one of the next two."""
    assigned: tuple[MessageQueue, ...] = ()
    """Some queues alone."""
    pattern: str | None = None
    """A regular expression for the whole names of topics."""
    include_system: bool = False
    """Whether the pattern may match topics of brokers and groups."""
    starting_offsets: str | None = None
    """`earliest`, `latest` or JSON; None: earliest in a batch, latest in a stream."""
    ending_offsets: str | None = None
    """The same for the end of a batch; None: latest. A stream has none."""
    starting_times: Times | None = None
    """Begin with the first message that was stored then or later."""
    ending_times: Times | None = None
    """End before the first message that was stored then or later."""
    time_not_found: TimeNotFound = TimeNotFound.ERROR
    group: str | None = None
    """Whose offsets a query may begin at, and a stream commits."""
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    """How long a micro-batch waits for that many."""
    push_filters: bool = False
    """Whether a batch leaves out what Spark's filters leave out; its session has to allow it."""
    split_bytes: int = 128 << 20
    partitions_min: int = 1
    fetch_bytes: int = FETCH_BYTES
    shape: RowShape = RowShape.IMAGO
    columns: tuple[str, ...] = DEFAULT
    """Of the rows, in order: Spark cannot leave out columns of a Python source by itself."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    retries: int = 5
    run: FencedRun | None = None
    """Under which the query asks, before each micro-batch, whether it may go on."""

    @property
    def subscription(self) -> TopicChoice:
        """What the query reads."""
        return TopicChoice(
            topics=frozenset(self.topics),
            assigned=frozenset(self.assigned),
            pattern=self.pattern,
            include_system=self.include_system,
        )


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a map whose keys may be in any case. OptionError: one is wrong."""
    given = {name.lower(): value for name, value in options.items()}
    refuse_unknown(given, (*_OPTIONS, *_COLUMN_NAMES, *_LOSS_NAMES, *RUN_NAMES, *ACCESS_NAMES))
    if not given.get("bootstrap"):
        raise OptionError("option 'bootstrap' is missing: add .option(\"bootstrap\", …)")
    chosen = [name for name in _TOPIC_CHOICES if given.get(name.lower())]
    if not chosen:
        raise OptionError(
            "option 'subscribe' is missing: add .option(\"subscribe\", …), or assign or"
            " subscribePattern"
        )
    if len(chosen) > 1:
        raise OptionError(f"options {' and '.join(chosen)}: only one can say what to read")
    _refuse_two_beginnings(given)
    return SourceOptions(
        **read_given(given, _OPTIONS),
        **_read_columns(given),
        on_data_loss=_read_on_data_loss(given),
        run=read_run(given),
        **read_access(given),
    )


def _refuse_two_beginnings(given: Mapping[str, str]) -> None:
    for offsets, times in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
    ):
        if offsets.lower() in given and times.lower() in given:
            raise OptionError(f"options {offsets!r} and {times!r}: only one can say where")
    if given.get("startingoffsets", "").strip().lower() == "group" and not given.get("group"):
        raise OptionError(
            "option 'startingOffsets': group needs .option(\"group\", …), whose it is"
        )


_TOPIC_CHOICES: Final = ("subscribe", "assign", "subscribePattern")
_COLUMN_NAMES: Final = ("schema", "columns", "includeHeaders")
_LOSS_NAMES: Final = ("onDataLoss", "failOnDataLoss")
RUN_NAMES: Final = ("pipeline", "epoch")
_FORMER: Final = {"kafka.bootstrap.servers": "bootstrap"}
"""Of Spark's Kafka source, which nothing of ours is near to by its letters."""
_SPARKS_OWN: Final = frozenset({"path", "paths"})
"""Spark adds these itself."""


def refuse_unknown(given: Iterable[str], names: Sequence[str]) -> None:
    """Raise OptionError for the first lower-case name that is not one of `names`."""
    given = list(given)
    refuse_secrets(given)
    by_lower = {name.lower(): name for name in names}
    for name in given:
        if name in by_lower or name in _SPARKS_OWN:
            continue
        close = difflib.get_close_matches(_FORMER.get(name, name), list(by_lower), n=1)
        hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"known are {', '.join(names)}"
        raise OptionError(f"option {name!r} is unknown; {hint}")


def read_option(given: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    """Return one option's value. OptionError: it is wrong."""
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        return parse(text)
    except (ValueError, UsageError) as error:
        raise OptionError(f"option {name!r}: {error}") from None


def read_given(given: Mapping[str, str], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the fields of those options that are given. OptionError: one is wrong."""
    return {
        field: read_option(given, name, parse, None)
        for name, (field, parse) in options.items()
        if name.lower() in given
    }


def read_run(given: Mapping[str, str]) -> FencedRun | None:
    """Return the run that `pipeline` and `epoch` name, or the one in the environment."""
    pipeline = given.get("pipeline") or os.environ.get("IMAGO_PIPELINE")
    epoch = given.get("epoch") or os.environ.get("IMAGO_EPOCH")
    if not pipeline and not epoch:
        return None
    if not pipeline or not epoch:
        raise OptionError("options 'pipeline' and 'epoch': give both, or none")
    return FencedRun(pipeline, read_option({"epoch": epoch}, "epoch", epoch_of, 0))


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for topic in topics:
        check_name("topic", topic, characters_max=255)
    if not topics:
        raise ValueError("names no topic")
    return topics


def epoch_of(text: str) -> int:
    """Return an epoch, of a run or a sink: 0 or more. ValueError: the text is something else."""
    if not text.strip().isdecimal() or len(text.strip()) > _EPOCH_DIGITS:
        raise ValueError(f"{text!r} is not a number of 0 or more")
    return int(text)


def count_of(text: str) -> int:
    """Return a number above 0. ValueError: the text is something else."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def seconds_of(text: str) -> float:
    """Return seconds above 0. ValueError: the text is something else."""
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise ValueError(f"{text!r} is not a number of seconds up to 3600")
    return seconds


def duration_of(text: str) -> float:
    """Return the seconds of a text like 500ms, 30s, 15m or 1h. ValueError: it is something else."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise ValueError(f"{text!r} is no time like 30s, 15m or 1h")
    return float(found[1]) * _UNITS[found[2].lower()]


def _assigned(text: str) -> tuple[MessageQueue, ...]:
    try:
        queues = {
            MessageQueue(topic, shard, whole_of(queue_id))
            for topic, shards in json.loads(text, object_pairs_hook=each_once).items()
            for shard, numbers in shards.items()
            for queue_id in numbers
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError('must look like {"orders": {"shard-0": [0, 1]}}') from None
    for queue in queues:
        check_name("topic", queue.topic, characters_max=255)
        if queue.queue_id < 0:
            raise ValueError(f"{queue.queue_id} is no number of a queue")
    if not queues:
        raise ValueError("names no queue")
    return tuple(sorted(queues))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


def _yes_or_no(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text!r}, must be true or false")
    return text.strip().lower() == "true"


def _split_bytes(text: str) -> int:
    size = count_of(text)
    if size < _SPLIT_BYTES_MIN:
        raise ValueError(f"{size}, must be {_SPLIT_BYTES_MIN} or more")
    return size


def _group(text: str) -> str:
    check_name("consumer group", text.strip(), characters_max=120)
    return text.strip()


def _time_not_found(text: str) -> TimeNotFound:
    return choice(TimeNotFound, text)


def _fetch_bytes(text: str) -> int:
    size = count_of(text)
    if not _FETCH_BYTES_MIN <= size <= FETCH_BYTES_MAX:
        raise ValueError(f"{size}, must be {_FETCH_BYTES_MIN} to {FETCH_BYTES_MAX}")
    return size


def _on_data_loss(text: str) -> OnDataLoss:
    return choice(OnDataLoss, text)


def _read_on_data_loss(given: Mapping[str, str]) -> OnDataLoss:
    """Return what `onDataLoss` says, or Kafka's name for it. OptionError: they disagree."""
    ours = read_option(given, "onDataLoss", _on_data_loss, None)
    fails = read_option(given, "failOnDataLoss", _yes_or_no, None)
    if fails is None:
        return ours or OnDataLoss.FAIL
    found = OnDataLoss.FAIL if fails else OnDataLoss.SKIP
    if ours not in (None, found):
        raise OptionError("options 'onDataLoss' and 'failOnDataLoss' disagree: give one of them")
    return found


def _row_shape(text: str) -> RowShape:
    return choice(RowShape, text)


def _read_columns(given: Mapping[str, str]) -> dict[str, Any]:
    """Return which columns rows have, and whose names. OptionError: there are no such columns."""
    shape = read_option(given, "schema", _row_shape, RowShape.IMAGO)
    default = default_columns(shape)
    columns = read_option(given, "columns", lambda text: parse_columns(text, shape), default)
    if read_option(given, "includeHeaders", _yes_or_no, False):
        if shape is not RowShape.KAFKA:
            raise OptionError(
                'option \'includeHeaders\': is of .option("schema", "kafka"); here the column'
                ' is .option("columns", "default,properties")'
            )
        columns = tuple(dict.fromkeys((*columns, HEADERS)))
    return {"shape": shape, "columns": columns}


def choice(kind: type[E], text: str) -> E:
    """Return the member of an enumeration that a text names, in any case. ValueError: no match."""
    for member in kind:
        if str(member.value).lower() == text.strip().lower():
            return member
    raise ValueError(f"{text!r}, must be {' or '.join(str(one.value) for one in kind)}")


_OPTIONS: Final[Mapping[str, Option]] = {
    "bootstrap": ("bootstrap", parse_addresses),
    "subscribe": ("topics", _topics),
    "assign": ("assigned", _assigned),
    "subscribePattern": ("pattern", _pattern),
    "includeSystem": ("include_system", _yes_or_no),
    "startingOffsets": ("starting_offsets", str.strip),
    "endingOffsets": ("ending_offsets", str.strip),
    "startingTimestamp": ("starting_times", parse_times),
    "endingTimestamp": ("ending_times", parse_times),
    "timestampNotFound": ("time_not_found", _time_not_found),
    "group": ("group", _group),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", count_of),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", count_of),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", count_of),
    "maxTriggerDelay": ("max_trigger_delay_s", duration_of),
    "pushFilters": ("push_filters", _yes_or_no),
    "splitBytes": ("split_bytes", _split_bytes),
    "minPartitions": ("partitions_min", count_of),
    "fetchBytes": ("fetch_bytes", _fetch_bytes),
    "timeout": ("timeout_s", seconds_of),
    "retries": ("retries", count_of),
}
"""By name: the field of `SourceOptions`, which has the default, and what reads the text."""
