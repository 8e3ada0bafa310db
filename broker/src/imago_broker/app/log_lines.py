"""Lines of the log as JSON: each has the name of its event and its fields as they were given.

A line of text begins with its event and has fields behind it, `topic_created topic=a queues=4/4`.
So both are in the template that every call of a logger has, and nothing is named twice.
"""

from __future__ import annotations

import json
import logging
import math
import re
from datetime import UTC, datetime
from typing import Final

OURS: Final = "imago_"
UNNAMED: Final = "unnamed"
"""The event of lines that are sentences: those of libraries, and the operator's."""

_EVENT: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)+(?=[ :]|$)")
_KEY: Final = re.compile(r"(?:^| )(\w+)=")
_CONVERSION: Final = re.compile(r"(?<!%)%(?!%)[-+ #0]*\d*(?:\.\d+)?[a-z]")
_NUMBER: Final = re.compile(r"%(?:\.\d+)?[dfg]")
_PROSE: Final = re.compile(r"[:;,]? |[:;,]$")
"""Where a value that was filled in ends, and words about it begin."""


class JsonLines(logging.Formatter):
    """Makes one line of JSON of each record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        message = record.getMessage()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event_of(record, message),
            "message": message,
            "fields": fields(str(record.msg), record.args),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def event_of(record: logging.LogRecord, message: str) -> str:
    """Return what a line is called."""
    given = record.__dict__.get("event")
    return str(given) if given else named(message) if record.name.startswith(OURS) else UNNAMED


def named(text: str) -> str:
    """Return the event that a line, or the template of one, begins with."""
    found = _EVENT.match(text)
    return found[0] if found else UNNAMED


def keys(template: str) -> list[str]:
    """Return the names of a template's fields."""
    return _KEY.findall(template)


def fields(template: str, args: object) -> dict[str, object]:
    """Return the fields of a line: numbers where the template has one, else text."""
    if not isinstance(args, tuple):
        args = ()
    found: dict[str, object] = {}
    for key, begin, end in _values(template):
        value = template[begin:end]
        first = len(_CONVERSION.findall(template[:begin]))
        given = args[first : first + len(_CONVERSION.findall(value))]
        if _NUMBER.fullmatch(value) and isinstance(given[0], int | float):
            found[key] = given[0] if math.isfinite(given[0]) else str(given[0])
        else:
            found[key] = value % given if args else value
    return found


def _values(template: str) -> list[tuple[str, int, int]]:
    """Return which part of a template is the value of which key."""
    matches = list(_KEY.finditer(template))
    result = []
    for at, match in enumerate(matches, 1):
        end = matches[at].start() if at < len(matches) else len(template)
        if _CONVERSION.search(template, match.end(), end):
            prose = _PROSE.search(template, match.end(), end)
            end = prose.start() if prose else end
        result.append((match[1], match.end(), end))
    return result
