"""Topics that a configuration file names: its words turned into a topic's settings."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from imago_broker.model.topics import (
    ACKNOWLEDGEMENT,
    DIALECTS,
    METAQ_PUBLISH,
    METAQ_STAT,
    METAQ_SUBSCRIBE,
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
    "retention_ms": RETENTION_MS,
}


def declared_topic(name: str, settings: Mapping[str, bool | int | float | str]) -> TopicConfig:
    """Return the settings of `[topics.NAME]`; ValueError names a key that there is not."""
    attributes = {}
    queues = 8
    for key, value in settings.items():
        if key == QUEUES:
            queues = int(value)
        elif key in ATTRIBUTES:
            attributes[ATTRIBUTES[key]] = _text(value)
        else:
            known = [QUEUES, *ATTRIBUTES]
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise ValueError(f"{key}: no such key; did you mean {nearest}?")
    return TopicConfig(name=name, read_queues=queues, write_queues=queues, attributes=attributes)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
