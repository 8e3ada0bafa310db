"""What a topic's attributes may say.

People name those that mean something here: others are mistyped. RocketMQ's tools may set any,
which are kept for them, within `ATTRIBUTES_BYTES_MAX`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from imago_broker.model.topics import topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NUMBER_MAX: Final = (1 << 63) - 1
ATTRIBUTES_BYTES_MAX = 32 << 10
"""Of all of a topic, or a group, together: many topics share one node of the registry."""
MESSAGE_TYPE: Final = "message.type"
"""RocketMQ 5's own: its tools show it, and its proxies take messages of this type alone."""
LITE_MINUTES: Final = "lite.topic.expiration"
"""RocketMQ's, of 5.5: after how many minutes without a message a lite topic goes; -1: never."""
_LITE_MINUTES_HIGH: Final = 30 * 24 * 60
_LITE_DIGITS: Final = len(str(_LITE_MINUTES_HIGH))
MESSAGE_TYPES: Final = (
    "UNSPECIFIED",
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "MIXED",
    "PRIORITY",
    "LITE",
)
SETTABLE: Final = (
    *sorted(topics.OWN_ATTRIBUTES - {topics.MATERIALISED, topics.SEALED}),
    MESSAGE_TYPE,
    LITE_MINUTES,
)
"""What people may set, beside MetaQ's filters of groups."""
_KEPT_BY_BROKERS: Final = (topics.MATERIALISED, topics.SEALED, topics.METAQ_BEGIN)

_BOOLEANS = frozenset({"true", "false"})
_CHOICES: Mapping[str, frozenset[str]] = {
    topics.DIALECTS: frozenset({"metaq,rocketmq", "rocketmq"}),
    topics.METAQ_ARCHIVE: frozenset({"arc", "zip"}),
    MESSAGE_TYPE: frozenset(MESSAGE_TYPES),
    topics.METAQ_PUBLISH: _BOOLEANS,
    topics.METAQ_STAT: _BOOLEANS,
    topics.METAQ_SUBSCRIBE: _BOOLEANS,
}
_NUMBERS = frozenset({topics.RETENTION_BYTES, topics.RETENTION_MS})


def attributes_problem(
    attributes: Mapping[str, str],
    *,
    acknowledgements: frozenset[str],
    before: Mapping[str, str] | None = None,
) -> str | None:
    """Return what is wrong with the first bad attribute of ours, or None.

    `before`: what the topic has; what it keeps as it is does not stand in the way of the rest.
    """
    choices = {**_CHOICES, topics.ACKNOWLEDGEMENT: acknowledgements}
    before = before or {}
    for name, value in attributes.items():
        if before.get(name) == value:
            continue
        if name.startswith(_KEPT_BY_BROKERS) and not _archived(name, value, attributes):
            return _kept_text(name)
        allowed = choices.get(name)
        if allowed is not None and value not in allowed:
            return f"{name}: {value!r:.60}, must be one of {', '.join(sorted(allowed))}"
        if name in _NUMBERS and not is_number(value):
            return f"{name}: {value!r:.60}, must be a whole number without a unit"
        if problem := _form_problem(name, value):
            return problem
    return size_problem(attributes, before)


def _form_problem(name: str, value: str) -> str | None:
    """Return what is wrong with a value that has a form of its own, or None."""
    if name == LITE_MINUTES and _minutes(value) is None:
        return f"{name}: {value!r:.60}, must be -1, or minutes up to {_LITE_MINUTES_HIGH}"
    if name == topics.DELETE_WHEN:
        from imago_broker.config.cron import (  # noqa: PLC0415  commands that list topics do without
            Cron,
            CronError,
        )

        try:
            Cron.parse(value)
        except CronError as error:
            return f"{name}: {error}"
    return None


def _minutes(value: str) -> int | None:
    """Return how many minutes an attribute says; None: it is no such number."""
    if value == "-1":
        return -1
    if not (value.isascii() and value.isdecimal() and len(value) <= _LITE_DIGITS):
        return None
    return int(value) if int(value) <= _LITE_MINUTES_HIGH else None


def has_lite_topics(config: topics.TopicConfig | None) -> bool:
    """Whether a topic's messages are of lite topics."""
    return config is not None and config.attributes.get(MESSAGE_TYPE) == "LITE"


def lite_minutes(config: topics.TopicConfig | None) -> int:
    """Return after how many minutes without a message a topic's lite topics go; -1: never."""
    if config is None or not has_lite_topics(config):
        return -1
    return _minutes(config.attributes.get(LITE_MINUTES, "-1")) or -1


def size_problem(attributes: Mapping[str, str], before: Mapping[str, str]) -> str | None:
    """Return why there may not be so many, or so long, attributes, or None."""
    size = _size(attributes)
    if size <= max(ATTRIBUTES_BYTES_MAX, _size(before)):
        return None
    return f"attributes: {size} bytes, must be at most {ATTRIBUTES_BYTES_MAX} together"


def _size(attributes: Mapping[str, str]) -> int:
    return sum(
        len(name.encode(errors="replace")) + len(value.encode(errors="replace"))
        for name, value in attributes.items()
        if not name.startswith(_KEPT_BY_BROKERS)
    )


def unknown_problem(names: Iterable[str]) -> str | None:
    """Return which of the attributes that somebody names nothing reads, or None."""
    for name in names:
        if name in SETTABLE or name.removeprefix(topics.METAQ_FILTER) not in ("", name):
            continue
        if name.startswith(_KEPT_BY_BROKERS):
            return _kept_text(name)
        near = difflib.get_close_matches(name, SETTABLE, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SETTABLE)}"
        return f"attributes: {name!r:.60}: no such attribute; {hint}"
    return None


def kept_problem(before: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """Return which attribute that only brokers keep is left out, or None."""
    gone = (name for name in before if name not in wanted and name.startswith(_KEPT_BY_BROKERS))
    return next(map(_kept_text, gone), None)


def kept_by_brokers(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return those attributes that a broker keeps of its own queues, and nobody sets."""
    return {k: v for k, v in attributes.items() if k.startswith(_KEPT_BY_BROKERS)}


def of_every_shard(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the others: those that the topic has wherever it has queues."""
    return {k: v for k, v in attributes.items() if not k.startswith(_KEPT_BY_BROKERS)}


def _archived(name: str, value: str, attributes: Mapping[str, str]) -> bool:
    """Whether this says no more than that MetaQ's own files, which are archived, are kept."""
    return (name, value) == (topics.MATERIALISED, "true") and topics.METAQ_ARCHIVE in attributes


def _kept_text(name: str) -> str:
    return f"attributes: {name:.60}: the broker itself keeps it, and nobody sets it"


def is_number(text: str) -> bool:
    """Whether the text is a number that a retention limit may be."""
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= NUMBER_MAX
