"""How topics and groups may be called, and the topics that belong to a group."""

from __future__ import annotations

import re
from typing import Final

from imago_client.checks import check_text
from imago_client.errors import UsageError

TOPIC_CHARACTERS_MAX: Final = 127
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


def check_name(what: str, name: str, *, characters_max: int = TOPIC_CHARACTERS_MAX) -> None:
    """Raise UsageError unless `name` is what brokers accept for a topic or a group."""
    check_text(what, name)
    if not name:
        raise UsageError(f"{what}: the name is empty")
    if len(name) > characters_max:
        raise UsageError(f"{what} {name[:20]!r}…: {len(name)} characters, at most {characters_max}")
    if not _NAME.match(name):
        raise UsageError(f"{what} {name!r}: only letters, digits and % | _ - are allowed")
