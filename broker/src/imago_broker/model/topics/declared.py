"""Topics that a configuration file names: its words turned into a topic's settings."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_broker.config.sections.section import FILTER_PREFIX, LEVELS, PATTERN_SIGN, is_pattern
from imago_broker.model import names
from imago_broker.model.topics.attributes import attributes_problem
from imago_broker.model.topics.topics import (
    ACKNOWLEDGEMENT,
    DELETE_WHEN,
    DIALECTS,
    MATERIALISED,
    METAQ_ARCHIVE,
    METAQ_FILTER,
    METAQ_PUBLISH,
    METAQ_STAT,
    METAQ_SUBSCRIBE,
    RETENTION_BYTES,
    RETENTION_MS,
    TopicConfig,
    attribute_text,
)
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

ANY_NAME: Final = "a"
"""A topic that a pattern makes, to see its settings by, and what a pattern's sign stands for."""
QUEUES = "queues"
ATTRIBUTES = {
    "acknowledgement": ACKNOWLEDGEMENT,
    "delete_when": DELETE_WHEN,
    "dialects": DIALECTS,
    "metaq_archive": METAQ_ARCHIVE,
    "metaq_publish": METAQ_PUBLISH,
    "metaq_stat": METAQ_STAT,
    "metaq_subscribe": METAQ_SUBSCRIBE,
    "retention_bytes": RETENTION_BYTES,
    "retention_ms": RETENTION_MS,
}


def declared_topic(
    name: str,
    settings: Mapping[str, bool | int | float | str],
    base: TopicConfig | None = None,
    *,
    gone: Collection[str] = (),
) -> TopicConfig:
    """Return the settings of `[topics.NAME]`; ValueError names a key that there is not.

    `base` gives what the section does not name: the topic as it is. `gone`: keys that it has
    named before.
    """
    base = base or TopicConfig(name=name)
    attributes = dict(base.attributes)
    for key in gone:
        attributes.pop(_attribute(key) or "", None)
    queues: int | None = None
    for key, value in settings.items():
        if key == QUEUES:
            queues = _number(key, value)
        elif attribute := _attribute(key):
            attributes[attribute] = attribute_text(value)
        else:
            known = [QUEUES, *ATTRIBUTES]
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise WrongError(f"{key}: no such key; did you mean {nearest}?")
    if METAQ_ARCHIVE in attributes:
        attributes[MATERIALISED] = "true"  # what is archived are MetaQ's own files
    if queues is None:
        return replace(base, attributes=attributes)
    return replace(base, read_queues=queues, write_queues=queues, attributes=attributes)


def check_declared(
    topics: Mapping[str, Mapping[str, bool | int | float | str]], patterns: Iterable[str]
) -> None:
    """Raise ValueError for the first declared topic, or pattern of topics, that cannot be."""
    for pattern in patterns:
        if problem := names.topic_problem(pattern.replace(PATTERN_SIGN, ANY_NAME)):
            raise WrongError(f"metaq.topic_patterns: {pattern!r:.60}: {problem}")
    for name, settings in topics.items():
        if problem := names.own_problem(name, ""):
            raise WrongError(f"topics.{name}: {problem}: take it out")
        try:
            topic = declared_topic(ANY_NAME if is_pattern(name) else name, settings)
        except ValueError as error:
            raise WrongError(f"topics.{name}: {error}") from error
        levels = frozenset(LEVELS)
        if problem := attributes_problem(topic.attributes, acknowledgements=levels):
            raise WrongError(f"topics.{name}: {problem}")


def pattern_topic(
    name: str, settings: Mapping[str, bool | int | float | str], *, queues: int
) -> TopicConfig:
    """Return a topic `name` as a pattern's settings have it made, `queues` unless they say."""
    return declared_topic(name, {QUEUES: queues, **settings})


def _attribute(key: str) -> str | None:
    if key.startswith(FILTER_PREFIX):
        return METAQ_FILTER + key.removeprefix(FILTER_PREFIX)
    return ATTRIBUTES.get(key)


def _number(key: str, value: object) -> int:
    # MetaQ's server.ini has texts alone.
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 6:
        return int(value)
    if type(value) is not int:
        raise WrongError(f"{key}: {value!r:.60}, must be a whole number")
    return value
