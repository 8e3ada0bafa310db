"""The options of `format("imago")`: a map of texts becomes a checked value."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from imago_client.config import parse_addresses
from imago_client.errors import UsageError
from imago_client.messages import check_name
from imago_spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

FETCH_MESSAGES_MAX: Final = 10_000
FETCH_BYTES_MAX: Final = 4 << 20
_FETCH_BYTES_MIN: Final = 64 << 10


class OnDataLoss(Enum):
    """What to do when offsets that the query needs no longer exist."""

    FAIL = "fail"
    SKIP = "skip"


class Columns(Enum):
    """Which columns rows have; Spark cannot leave columns of a Python source out by itself."""

    CORE = "core"
    PROPERTIES = "properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """One query's options."""

    bootstrap: tuple[str, ...]
    topics: tuple[str, ...]
    starting_offsets: str | None = None
    """`earliest`, `latest` or JSON; None: earliest in a batch, latest in a stream."""
    ending_offsets: str = "latest"
    max_offsets_per_trigger: int | None = None
    fetch_bytes: int = FETCH_BYTES_MAX
    columns: Columns = Columns.CORE
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    timeout_s: float = 10.0
    retries: int = 5


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a map whose keys may be in any case. OptionError says what is wrong."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in _BY_LOWER and name not in _SPARKS_OWN:
            raise OptionError(_unknown(name))
    for needed in ("bootstrap", "subscribe"):
        if not given.get(needed):
            raise OptionError(f'option {needed!r} is missing: add .option("{needed}", …)')
    if "failondataloss" in given and "ondataloss" not in given:
        given["ondataloss"] = "skip" if given["failondataloss"].lower() == "false" else "fail"
    return SourceOptions(
        bootstrap=_read(given, "bootstrap", parse_addresses, ()),
        topics=_read(given, "subscribe", _topics, ()),
        starting_offsets=_read(given, "startingOffsets", str.strip, None),
        ending_offsets=_read(given, "endingOffsets", str.strip, "latest"),
        max_offsets_per_trigger=_read(given, "maxOffsetsPerTrigger", _count, None),
        fetch_bytes=_read(given, "fetchBytes", _fetch_bytes, FETCH_BYTES_MAX),
        columns=_read(given, "columns", _columns, Columns.CORE),
        on_data_loss=_read(given, "onDataLoss", _on_data_loss, OnDataLoss.FAIL),
        timeout_s=_read(given, "timeout", _seconds, 10.0),
        retries=_read(given, "retries", _count, 5),
    )


_NAMES: Final = (
    "bootstrap",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "fetchBytes",
    "columns",
    "onDataLoss",
    "failOnDataLoss",
    "timeout",
    "retries",
)
_BY_LOWER: Final = {name.lower(): name for name in _NAMES}
_SPARKS_OWN: Final = frozenset({"path", "paths"})
"""Spark adds these itself."""


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, list(_BY_LOWER), n=1)
    hint = f"did you mean {_BY_LOWER[close[0]]!r}?" if close else f"known are {', '.join(_NAMES)}"
    return f"option {name!r} is unknown; {hint}"


def _read(given: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        return parse(text)
    except (ValueError, UsageError) as error:
        raise OptionError(f"option {name!r}: {error}") from None


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for topic in topics:
        check_name("topic", topic, characters_max=255)
    if not topics:
        raise ValueError("names no topic")
    return topics


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise ValueError(f"{text!r} is not a number of seconds up to 3600")
    return seconds


def _fetch_bytes(text: str) -> int:
    size = _count(text)
    if not _FETCH_BYTES_MIN <= size <= FETCH_BYTES_MAX:
        raise ValueError(f"{size}, must be {_FETCH_BYTES_MIN} to {FETCH_BYTES_MAX}")
    return size


def _columns(text: str) -> Columns:
    return _choice(Columns, text)


def _on_data_loss(text: str) -> OnDataLoss:
    return _choice(OnDataLoss, text)


def _choice(kind: type[E], text: str) -> E:
    for member in kind:
        if member.value == text.strip().lower():
            return member
    raise ValueError(f"{text!r}, must be {' or '.join(str(one.value) for one in kind)}")
