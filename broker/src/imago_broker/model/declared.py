"""Topics that a configuration file names: its words turned into a topic's settings."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.model.topics import (
    ACKNOWLEDGEMENT,
    DIALECTS,
    METAQ_PUBLISH,
    METAQ_STAT,
    METAQ_SUBSCRIBE,
    RETENTION_BYTES,
    RETENTION_MS,
    TopicConfig,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUES = "queues"
ATTRIBUTES = {
    "acknowledgement": ACKNOWLEDGEMENT,
    "dialects": DIALECTS,
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
) -> TopicConfig:
    """Return the settings of `[topics.NAME]`; ValueError names a key that there is not.

    `base` gives what the section does not name: the topic as it is.
    """
    base = base or TopicConfig(name=name)
    attributes = dict(base.attributes)
    queues: int | None = None
    for key, value in settings.items():
        if key == QUEUES:
            queues = int(value)
        elif key in ATTRIBUTES:
            attributes[ATTRIBUTES[key]] = _text(value)
        else:
            known = [QUEUES, *ATTRIBUTES]
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise ValueError(f"{key}: no such key; did you mean {nearest}?")
    if queues is None:
        return replace(base, attributes=attributes)
    return replace(base, read_queues=queues, write_queues=queues, attributes=attributes)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
