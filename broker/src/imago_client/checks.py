"""What callers hand in is of its kind, or a UsageError says what it must be."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from imago_client.errors import KindError, UsageError
from imago_client.message_queue import MessageQueue

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BODY_BYTES_MAX: Final = 4 << 20
"""Of a message: no broker takes larger ones unless it is told to."""
_KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "str": ((str,), "text"),
    "bool": ((bool,), "True or False"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
}
"""By a field's annotation; what stands for no kind here its owner checks."""
_PATH: Final = ((str, os.PathLike), "the path of a file")


def refuse(what: str, value: object, wanted: str) -> UsageError:
    """Return the error for a value; what is long is cut."""
    return UsageError(f"{what}: {value!r:.80}, must be {wanted}")


def of_wrong_kind(what: str, value: object, wanted: str) -> KindError:
    """Return the error for a value that is of no use whatever it holds."""
    return KindError(*refuse(what, value, wanted).args)


def check_text(what: str, value: object) -> None:
    """KindError: it is no str."""
    if not isinstance(value, str):
        raise of_wrong_kind(what, value, "text")


def check_whole(what: str, value: object, low: int, high: int | None = None) -> None:
    """UsageError: it is no whole number, below `low` or above `high`."""
    if type(value) is not int or value < low or (high is not None and value > high):
        bounds = f", at least {low}" if high is None else f", {low} to {high}"
        made = refuse if type(value) is int else of_wrong_kind
        raise made(what, value, "a whole number" + bounds)


def check_seconds(what: str, value: Any, least: float = 0.0, most: float = math.inf) -> None:
    """UsageError: it is no number, below `least` or above `most`."""
    if type(value) is bool or not isinstance(value, int | float) or not least <= value <= most:
        bounds = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
        is_number = isinstance(value, int | float) and type(value) is not bool
        made = refuse if is_number else of_wrong_kind
        raise made(what, value, f"a number, {bounds}")


def check_texts(what: str, value: object, wanted: str) -> None:
    """UsageError: it is no mapping of text to text."""
    if not isinstance(value, Mapping):
        raise of_wrong_kind(what, value, wanted)
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise of_wrong_kind(what, {name: text}, wanted)


def check_kind(what: str, value: object, kind: type) -> None:
    """UsageError: it is something else."""
    if not isinstance(value, kind):
        raise of_wrong_kind(what, value, f"a {kind.__name__}")


def check_queue(queue: object, topic: str | None = None) -> None:
    """UsageError: it is no MessageQueue, or one of another topic."""
    if not isinstance(queue, MessageQueue):
        raise of_wrong_kind("queue", queue, "a MessageQueue, as `queues` returns them")
    shard: object = queue.shard
    if not isinstance(shard, str) or type(queue.queue_id) is not int:
        raise of_wrong_kind("queue", queue, "a MessageQueue, as `queues` returns them")
    if topic is not None and queue.topic != topic:
        raise UsageError(f"queue: {queue} is not one of topic {topic!r}")


def check_fields(owner: DataclassInstance) -> None:
    """UsageError: some field of a dataclass is not of the simple kind that its annotation names."""
    for one in fields(owner):
        value = getattr(owner, one.name)
        kinds = str(one.type).split(" | ")
        if kinds[0] not in _KINDS or (value is None and "None" in kinds):
            continue
        if any(kind not in _KINDS and kind != "None" for kind in kinds):
            continue
        allowed, wanted = _PATH if one.name.endswith("_file") else _KINDS[kinds[0]]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            shown = "…" if "password" in one.name else value
            raise of_wrong_kind(one.name, shown, wanted)


def check_positive(owner: object, *names: str) -> None:
    """UsageError: one of these fields, which are numbers, is not above 0."""
    for name in names:
        value = getattr(owner, name)
        if not value > 0:
            raise refuse(name, value, "above 0")


def names_of(what: str, names: Iterable[str], wanted: str) -> tuple[str, ...]:
    """Return a list of names. UsageError: it is none; one name alone is the likeliest mistake."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise of_wrong_kind(what, names, wanted)
    found = tuple(names)
    if not all(isinstance(name, str) for name in found):
        raise of_wrong_kind(what, found, wanted)
    return found


def metaq_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics of a MetaQ consumer. UsageError: they are no list of names, or none."""
    found = names_of("topics", topics, f"a list of names: [{_example(topics)}]")
    if not found:
        raise UsageError("topics: a consumer needs at least one")
    return found


def _example(given: object) -> str:
    return f'"{given}"' if isinstance(given, str) and len(given) < 60 else '"orders"'


def topic_tags(topics: Mapping[str, str] | Iterable[str], default: str) -> dict[str, str]:
    """Return topics with what is wanted of each; where that is not said, `default`."""
    wanted = f'a dict of topic and tags: {{{_example(topics)}: "{default}"}}'
    found = names_of("topics", topics, wanted)
    return dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(found, default)
