"""What is aggregated: windows, keys, measures, and when a window is closed; pure values.

A window is closed once the watermark has passed its end: the newest time of an event, less the
delay. An event counts as no newer than the moment at which a broker stored it, so that one with a
time far ahead does not close the windows of all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_spark.errors import OptionError
from imago_spark.pipelines import parse
from imago_spark.pipelines.settings import text_in
from imago_spark.sink_options import parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_spark.pipelines.settings import IngestSettings

OWN: Final = ("input", "by", "time", "window", "delay", "measures", "topic", *parse.OWN)
OF_MESSAGE: Final = {
    **dict.fromkeys(("topic", "shard", "key", "tags"), "string"),
    **dict.fromkeys(("born_time", "store_time"), "timestamp"),
}
"""Columns of a message by which rows may be aggregated, with their types."""
ADDED: Final = ("window_start", "window_end", "date")
FUNCTIONS: Final = ("count", "sum", "min", "max", "avg")
NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double")
ORDERED: Final = (*NUMBERS, "string", "timestamp", "date")
_MEASURE: Final = re.compile(r"\s*(\w+)\s*\(\s*([^()]+?)\s*\)\s*")
_SPAN: Final = re.compile(r"(\d+)\s*(s|m|h|d)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a window and key."""

    function: str
    field: str = ""
    """Empty: of rows, whatever they have."""
    kind: str = "bigint"
    """Type of the figure."""

    @property
    def may_overflow(self) -> bool:
        """Whether it may be larger than its type can say."""
        return self.function == "sum" and self.kind == "bigint"

    @property
    def name(self) -> str:
        return f"{self.function}_{self.field}" if self.field else "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """What one table of figures is of."""

    input: Path
    by: tuple[str, ...]
    time: str
    window_s: int
    delay_s: int
    measures: tuple[Measure, ...]
    topics: tuple[str, ...]
    topic: str | None
    """Where figures are sent, too."""
    kinds: Mapping[str, str]
    """Of the columns that the input has."""

    @property
    def fields(self) -> dict[str, str]:
        """The columns of a row of figures, with their types."""
        found = {"window_start": "timestamp", "window_end": "timestamp"}
        found |= {name: self.kinds[name] for name in self.by}
        return found | {one.name: one.kind for one in self.measures}

    @property
    def mark(self) -> dict[str, Any]:
        """What a table of figures is of for ever; measures may be added."""
        return {
            "input": str(self.input),
            "by": list(self.by),
            "time": self.time,
            "windowSeconds": self.window_s,
            "topics": sorted(self.topics),
        }

    def closed(self, newest_s: float | None) -> int | None:
        """Return up to where windows are closed, given the newest event; None: none is."""
        if newest_s is None:
            return None
        return int((newest_s - self.delay_s) // self.window_s) * self.window_s


def aggregation(wanted: IngestSettings, fields: Mapping[str, str]) -> Aggregation:
    """Return what a configuration asks of an input with these fields. OptionError: its mistake."""
    own = wanted.own
    kinds = {**OF_MESSAGE, **fields}
    time = text_in(own, "time") if "time" in own else "store_time"
    if kinds.get(time) != "timestamp":
        raise OptionError(f"config.time: {time!r} {_is(kinds, time)}, must be a timestamp")
    by = tuple(name.strip() for name in text_in(own, "by").split(",") if name.strip())
    for name in by:
        if name not in kinds:
            raise OptionError(f"config.by: {name!r} {_is(kinds, name)}")
        if name in ADDED or kinds[name] not in (*ORDERED, "boolean"):
            raise OptionError(
                f"config.by: {name!r} {_is(kinds, name)}, which is no key:"
                " name numbers, texts, times or booleans"
            )
    measures = _measures(text_in(own, "measures") if "measures" in own else "count", kinds)
    names = [*by, *(one.name for one in measures), *ADDED]
    if twice := [name for name in names if names.count(name) > 1]:
        raise OptionError(f"config.measures: {twice[0]!r} would be a column twice")
    topic = text_in(own, "topic") if "topic" in own else None
    if topic in wanted.topics:
        raise OptionError(f"config.topic: {topic!r} is the input's; figures need one of their own")
    if topic is not None:
        parse_sink_options({"bootstrap": wanted.bootstrap, "topic": topic})
    return Aggregation(
        input=input_of(wanted),
        by=by,
        time=time,
        window_s=_seconds(own, "window", "5m", 1),
        delay_s=_seconds(own, "delay", "10m", 0),
        measures=measures,
        topics=wanted.topics,
        topic=topic,
        kinds=kinds,
    )


def input_of(wanted: IngestSettings) -> Path:
    """Return the table that is aggregated: unless there is one, that of the topics' messages.

    OptionError: it is none, or the one that is written.
    """
    if "input" not in wanted.own:
        return wanted.path / "_imago" / "input"
    text = text_in(wanted.own, "input")
    if not text.startswith("/"):
        raise OptionError(f"config.input: {text!r}, must be the folder of a table, like /lake/x")
    found = Path(text)
    if found == wanted.path:
        raise OptionError("config.input: is path, too: figures need a table of their own")
    return found


def _measures(text: str, kinds: Mapping[str, str]) -> tuple[Measure, ...]:
    found = []
    for part in text.split(","):
        if part.strip() == "count":
            found.append(Measure("count"))
            continue
        match = _MEASURE.fullmatch(part)
        if match is None or match[1] not in FUNCTIONS:
            raise OptionError(
                f"config.measures: {part.strip()!r}, must be count or one of"
                f" {', '.join(FUNCTIONS)} of a field, like sum(amount)"
            )
        function, name = match[1], match[2]
        takes = {"sum": NUMBERS, "avg": NUMBERS}.get(function, ORDERED)
        if function != "count" and kinds.get(name) not in takes:
            raise OptionError(
                f"config.measures: {part.strip()!r}: field {name!r} {_is(kinds, name)}, must be"
                f" {' or '.join(takes)}"
            )
        if name not in kinds:
            raise OptionError(f"config.measures: field {name!r} {_is(kinds, name)}")
        found.append(Measure(function, name, _kind(function, kinds[name])))
    return tuple(found)


def _kind(function: str, of: str) -> str:
    if function in ("min", "max"):
        return of
    is_whole = of not in ("float", "double")
    return "bigint" if function == "count" or (function == "sum" and is_whole) else "double"


def _is(kinds: Mapping[str, str], name: str) -> str:
    return f"is {kinds[name]}" if name in kinds else f"is no column; there are {', '.join(kinds)}"


def _seconds(own: Mapping[str, Any], name: str, default: str, least: int) -> int:
    text = str(own.get(name, default)).strip()
    match = _SPAN.fullmatch(text)
    found = int(match[1]) * _UNITS[match[2]] if match else -1
    if found < least:
        raise OptionError(f"config.{name}: {text!r}, must be a time like 30s, 5m, 1h or 1d")
    if name == "window" and 86_400 % found and found % 86_400:
        raise OptionError(f"config.window: {text!r}, must divide a day, or be whole days")
    return found
