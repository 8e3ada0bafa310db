"""Which rows of a table are replayed, and in which steps: from commits and settings alone.

A step has the same share of each queue, so that time goes on in all of them side by side. Its
borders are offsets: they stay when files are merged, and when the table grows.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from imago_client.message_queue import MessageQueue
from imago_client.naming import check_name
from imago_spark.choosing.times import Times
from imago_spark.errors import OptionError, TableError
from imago_spark.options import parse_options
from imago_spark.pipelines.settings import choice_in, count_in, text_in
from imago_spark.pipelines.tables.history import clipped
from imago_spark.progress import from_option
from imago_spark.sink_options import parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_spark.offsets import Offsets
    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.history import History, Range, Ranges

SOURCE: Final = (
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
)
OWN: Final = (
    *("id", "topic", "rows", "fieldPrefix", "onDamage", "queueBy", "rowsPerSecond"),
    *SOURCE,
)
STEP_ROWS: Final = 100_000
PACE_ROWS: Final = 1_000
_ALWAYS: Final = Times()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Which rows, where to, and how."""

    id: str
    topic: str
    topics: tuple[str, ...]
    queues: tuple[MessageQueue, ...] = ()
    """Only these; empty: all of the topics."""
    first: Offsets
    """Of queues that do not begin where the table does."""
    last: Offsets
    since: Times = _ALWAYS
    until: Times = _ALWAYS
    rejects: bool = False
    prefix: str = ""
    skips_damaged: bool = False
    step_rows: int = STEP_ROWS
    rows_per_second: int = PACE_ROWS
    sink: Mapping[str, str]
    """Options of the sink that every step has."""
    digest: str
    """Of the settings that say which message comes when."""

    def takes(self, queue: MessageQueue) -> bool:
        return queue in self.queues if self.queues else queue.topic in self.topics


def slice_of(wanted: IngestSettings) -> Slice:
    """Return what a configuration file wants replayed. OptionError: its mistake."""
    own = wanted.own
    given = {name: str(own[name]) for name in SOURCE if name in own}
    chosen = {"assign": given.pop("assign")} if "assign" in given else {}
    chosen = chosen or {"subscribe": ",".join(wanted.topics)}
    read = parse_options({"bootstrap": wanted.bootstrap} | chosen | given)
    topic, name = text_in(own, "topic"), text_in(own, "id")
    if not set(read.subscription.topics) and any(
        queue.topic not in wanted.topics for queue in read.assigned
    ):
        raise OptionError("config.assign: names a topic that is none of topics")
    if topic in wanted.topics:
        raise OptionError(
            f"config.topic: {topic!r} is a topic that the table is of: it would get its own rows"
            " once more; name another one"
        )
    check_name("topic", topic)
    sink = {"bootstrap": wanted.bootstrap, "topic": topic}
    sink["queueBy"] = choice_in(own, "queueBy", ("key", "roundRobin", "column"))
    if wanted.pipeline is not None:
        sink |= {"pipeline": wanted.pipeline, "epoch": str(wanted.epoch)}
    step_rows = wanted.rows_max or STEP_ROWS
    rejects = choice_in(own, "rows", ("table", "rejects")) == "rejects"
    skips_damaged = choice_in(own, "onDamage", ("fail", "skip")) == "skip"
    prefix = str(own.get("fieldPrefix", ""))
    text = json.dumps(
        [chosen, given, topic, sink["queueBy"], step_rows, rejects, skips_damaged, prefix],
        sort_keys=True,
    )
    digest = blake2b(f"{wanted.path} {text}".encode(), digest_size=6).hexdigest()
    parse_sink_options(sink | {"sinkId": f"{name}-{digest}"})
    return Slice(
        id=name,
        topic=topic,
        topics=wanted.topics,
        queues=read.assigned,
        first=_offsets(read.starting_offsets, "startingOffsets", "earliest"),
        last=_offsets(read.ending_offsets, "endingOffsets", "latest"),
        since=read.starting_times or _ALWAYS,
        until=read.ending_times or _ALWAYS,
        rejects=rejects,
        prefix=prefix,
        skips_damaged=skips_damaged,
        step_rows=step_rows,
        rows_per_second=count_in(own, "rowsPerSecond", PACE_ROWS) or PACE_ROWS,
        sink=sink,
        digest=digest,
    )


def _offsets(text: str | None, name: str, default: str) -> Offsets:
    """Return the offsets that an option names; those of the table's ends are left out."""
    if text is None or text.lower() == default:
        return {}
    if text.lower() in ("earliest", "latest", "group"):
        raise OptionError(f"config.{name}: {text!r}, must be {default} or offsets of queues")
    return {queue: at for queue, at in from_option(text, name).offsets.items() if at >= 0}


def chosen(history: History, wanted: Slice) -> Ranges:
    """Return the offsets that the table has of a slice, before its times are looked at.

    TableError: the slice names a topic or a queue that the table does not have.
    """
    had = history.ranges
    if missing := sorted({*wanted.queues, *wanted.first, *wanted.last} - had.keys()):
        raise TableError(f"{missing[0]}: the table has no such queue")
    known = {queue.topic for queue in had}
    for topic in wanted.topics:
        if topic not in known:
            close = difflib.get_close_matches(topic, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known))}"
            raise TableError(f"topics: the table has no row of {topic!r}; {hint}")
    found: Ranges = {}
    for queue, parts in sorted(had.items()):
        low, high = wanted.first.get(queue, 0), wanted.last.get(queue)
        if wanted.takes(queue) and (cut := clipped(parts, low, high)):
            found[queue] = cut
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The rows of a replay as its first run found them; nothing of it changes later."""

    digest: str
    table: str
    """Which one, whatever is made anew at its path."""
    since: Mapping[tuple[str, str], int]
    """The commit from which on it has the topic that each place had then."""
    ranges: Ranges
    """From the first to the last row of each queue."""
    steps: int
    rows: int
    bytes: int
    left_out: int = 0
    """Rows that are damaged, or have no body."""

    @property
    def spans(self) -> dict[MessageQueue, Range]:
        """The first offset of each queue, and the one after its last."""
        return {queue: (parts[0][0], parts[-1][1]) for queue, parts in self.ranges.items()}

    def part(self, step: int) -> Ranges:
        """Return the offsets of one step."""
        found: Ranges = {}
        for queue, (low, high) in self.spans.items():
            start, end = (low + -(-(high - low) * at // self.steps) for at in (step, step + 1))
            if cut := clipped(self.ranges[queue], start, end):
                found[queue] = cut
        return found

    @property
    def sink(self) -> str:
        """What tells a batch of this plan from those of any other: all that is sent, and in which
        steps.
        """
        text = json.dumps(self.to_json(), sort_keys=True)
        return blake2b(text.encode(), digest_size=6).hexdigest()

    def check(self, table: str, history: History, step: int) -> None:
        """TableError: it is another table, or does not have what is left any more, as it was."""
        if table != self.table:
            raise TableError(
                "path: the table was removed and made anew since this replay was begun: its rows"
                " may be others; replay them under another id"
            )
        for queue, (low, high) in self.spans.items():
            start = low + -(-(high - low) * step // self.steps)
            place = (queue.topic, queue.shard)
            is_same = history.since.get(place, 0) == self.since.get(place, 0)
            now = clipped(history.ranges.get(queue, []), start, high) if is_same else []
            if now != clipped(self.ranges[queue], start, high):
                raise TableError(
                    f"{queue}: the table does not have all rows from {start} to {high - 1} any more"
                    " that this replay is of: retention took them, or the topic was made anew;"
                    " replay the rest under another id"
                )

    def to_json(self) -> dict[str, Any]:
        ranges = [
            [queue.topic, queue.shard, queue.queue_id, [list(part) for part in parts]]
            for queue, parts in sorted(self.ranges.items())
        ]
        return {
            "digest": self.digest,
            "table": self.table,
            "since": [[*place, number] for place, number in sorted(self.since.items())],
            "ranges": ranges,
            "steps": self.steps,
            "rows": self.rows,
            "bytes": self.bytes,
            "leftOut": self.left_out,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        ranges = {
            MessageQueue(topic, shard, number): [(start, end) for start, end in parts]
            for topic, shard, number, parts in value["ranges"]
        }
        return cls(
            digest=value["digest"],
            table=value["table"],
            since={(topic, shard): number for topic, shard, number in value["since"]},
            ranges=ranges,
            steps=value["steps"],
            rows=value["rows"],
            bytes=value["bytes"],
            left_out=value["leftOut"],
        )


def planned(
    wanted: Slice,
    table: str,
    history: History,
    ranges: Ranges,
    found: Mapping[MessageQueue, Range],
    **sums: int,
) -> Plan:
    """Return the plan of ranges of which `found` has the rows: first offset, and after the last."""
    kept = {
        queue: cut
        for queue, parts in ranges.items()
        if queue in found and (cut := clipped(parts, *found[queue]))
    }
    steps = -(-sums["rows"] // wanted.step_rows)
    since = {
        place: number
        for place, number in history.since.items()
        if place in {(queue.topic, queue.shard) for queue in kept}
    }
    return Plan(digest=wanted.digest, table=table, since=since, ranges=kept, steps=steps, **sums)
