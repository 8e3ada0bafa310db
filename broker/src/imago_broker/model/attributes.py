"""What the broker's own topic attributes may say. Attributes of others are nobody's business."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.config.cron import Cron, CronError
from imago_broker.model import topics

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBER_MAX: Final = (1 << 63) - 1

_BOOLEANS = frozenset({"true", "false"})
_CHOICES: Mapping[str, frozenset[str]] = {
    topics.DIALECTS: frozenset({"metaq,rocketmq", "rocketmq"}),
    topics.MATERIALISED: _BOOLEANS,
    topics.METAQ_ARCHIVE: frozenset({"arc", "zip"}),
    topics.METAQ_PUBLISH: _BOOLEANS,
    topics.METAQ_STAT: _BOOLEANS,
    topics.METAQ_SUBSCRIBE: _BOOLEANS,
}
_NUMBERS = frozenset({topics.RETENTION_BYTES, topics.RETENTION_MS})


def attributes_problem(
    attributes: Mapping[str, str], *, acknowledgements: frozenset[str]
) -> str | None:
    """Return what is wrong with the first bad attribute of ours, or None."""
    choices = {**_CHOICES, topics.ACKNOWLEDGEMENT: acknowledgements}
    for name, value in attributes.items():
        allowed = choices.get(name)
        if allowed is not None and value not in allowed:
            return f"{name}: {value!r:.60}, must be one of {', '.join(sorted(allowed))}"
        if name in _NUMBERS and not is_number(value):
            return f"{name}: {value!r:.60}, must be a whole number without a unit"
        if name == topics.DELETE_WHEN:
            try:
                Cron.parse(value)
            except CronError as error:
                return f"{name}: {error}"
    return None


def is_number(text: str) -> bool:
    """Whether the text is a number that a retention limit may be."""
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= NUMBER_MAX
