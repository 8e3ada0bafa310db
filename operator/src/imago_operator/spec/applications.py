"""The applications of the image, and what their configuration may say: rules of admission.

The applications check their configuration themselves, more closely; a mistake that can be told
from names and words alone is refused before there is a pod. A test compares this table with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from imago_operator.spec.schema.rule import Rule

INGEST: Final = "ingest"
COMMON: Final = (
    *("trigger", "triggerSeconds", "onDataLoss", "splitBytes", "progressSeconds", "path"),
    *("landing", "format", "s3Endpoint", "s3Region", "s3CredentialsFile"),
)
PARSE: Final = (
    *("schema", "required", "fieldPrefix", "timestampFormat", "rejectedPercentMax"),
    *("bodyFormat", "schemaFile", "message", "headerBytes"),
)
SLICE: Final = (
    *("assign", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
)
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "trigger": ("continuous", "available-now"),
    "onDataLoss": ("fail", "skip"),
    "landing": ("stream", "ranges"),
    "format": ("parquet", "delta"),
    "bodyFormat": ("json", "avro", "protobuf"),
}
STREAMS: Final = (INGEST, "parse", "aggregate")
"""They go on for ever, unless they are told to end with what there is."""


@dataclass(frozen=True, slots=True)
class KnownApplication:
    """An application's own names in `config`, and those that it cannot do without."""

    own: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*COMMON, *self.own)


APPLICATIONS: Final[Mapping[str, KnownApplication]] = {
    INGEST: KnownApplication(),
    "parse": KnownApplication(PARSE, ("schema",)),
    "aggregate": KnownApplication(
        (*("input", "by", "time", "window", "delay", "measures", "topic"), *PARSE), ("by",)
    ),
    "audit": KnownApplication((*PARSE, "tables")),
    "compact": KnownApplication((*PARSE, *("fileBytes", "filesMin", "keepDays"))),
    "replay": KnownApplication(
        (
            *("id", "topic", "rows", "fieldPrefix", "onDamage", "queueBy", "rowsPerSecond"),
            *SLICE,
        ),
        ("id", "topic"),
    ),
    "report": KnownApplication(PARSE),
    "topic_stats": KnownApplication(("input", "days"), ("input",)),
    "lag_latency": KnownApplication(("input", "days", "groups"), ("input",)),
    "dlq_triage": KnownApplication(("samples",)),
}
NAMES: Final = tuple(name for name in APPLICATIONS if name != INGEST)


def _chosen(name: str) -> str:
    if name == INGEST:
        return "has(self.ingest)"
    return f"has(self.application) && self.application.name == '{name}'"


def _is(name: str, node: Mapping[str, Any]) -> bool:
    return name in node if name == INGEST else node.get("application", {}).get("name") == name


def _knows(name: str, known: KnownApplication) -> Rule:
    listed = ", ".join(f"'{one}'" for one in known.names)
    return Rule(
        path="spec",
        cel=f"!({_chosen(name)}) || !has(self.config) || self.config.all(key, key in [{listed}])",
        holds=lambda node: (
            not _is(name, node) or all(one in known.names for one in node.get("config", {}))
        ),
        message=f"config of {name} knows only {', '.join(known.names)}",
        only_at_admission=True,
    )


def _needs(name: str, known: KnownApplication) -> Rule:
    listed = " && ".join(f"'{one}' in self.config" for one in known.needs)
    return Rule(
        path="spec",
        cel=f"!({_chosen(name)}) || (has(self.config) && {listed})",
        holds=lambda node: (
            not _is(name, node) or all(one in node.get("config", {}) for one in known.needs)
        ),
        message=f"{name} needs {' and '.join(known.needs)} in config",
        only_at_admission=True,
    )


def _word(name: str, words: tuple[str, ...]) -> Rule:
    listed = ", ".join(f"'{one}'" for one in words)
    return Rule(
        path="spec",
        cel=f"has(self.code) || !has(self.config) || !('{name}' in self.config)"
        f" || string(self.config['{name}']) in [{listed}]",
        holds=lambda node: (
            "code" in node
            or name not in node.get("config", {})
            or str(node["config"][name]) in words
        ),
        message=f"{name} in config is {' or '.join(words)}",
        only_at_admission=True,
    )


def _ends(node: Mapping[str, Any]) -> bool:
    if "schedule" not in node or not any(_is(name, node) for name in STREAMS):
        return True
    return bool(node.get("config", {}).get("trigger") == "available-now")


def rules(schedule: str, zone: str) -> tuple[Rule, ...]:
    """Return the rules; `schedule`, `zone`: patterns of cron and of time zones."""
    streams = " || ".join(f"({_chosen(name)})" for name in STREAMS)
    return (
        Rule(
            path="spec",
            cel="[has(self.ingest), has(self.application), has(self.code)].filter(one, one).size()"
            " == 1",
            holds=lambda node: sum(name in node for name in ("ingest", "application", "code")) == 1,
            message="give exactly one of ingest, application and code",
        ),
        *(_knows(name, known) for name, known in APPLICATIONS.items()),
        *(_needs(name, known) for name, known in APPLICATIONS.items() if known.needs),
        *(_word(name, words) for name, words in WORDS.items()),
        Rule(
            path="spec",
            cel=f"!has(self.schedule) || !({streams}) || (has(self.config)"
            " && 'trigger' in self.config"
            " && string(self.config['trigger']) == 'available-now')",
            holds=_ends,
            message="what runs by schedule has to end: set trigger: available-now in config",
        ),
        *schedule_rules("spec.schedule", "cron", schedule, zone),
    )


def schedule_rules(path: str, name: str, schedule: str, zone: str) -> tuple[Rule, ...]:
    """Return the rules of a node's field of cron, and of the time zone beside it."""
    return (
        Rule(
            path=path,
            cel=f"self.{name}.matches('{schedule}')",
            holds=lambda node: re.fullmatch(schedule, node[name]) is not None,
            message=f"{name} has minute 0-59, hour 0-23, day 1-31, month 1-12 or jan-dec,"
            " weekday 0-7 or sun-sat",
        ),
        Rule(
            path=path,
            cel=f"self.timeZone.matches('{zone}')",
            holds=lambda node: re.fullmatch(zone, node["timeZone"]) is not None,
            message="timeZone is a name as Europe/Berlin",
        ),
    )
