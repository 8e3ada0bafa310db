"""What a broker that is not ours may say of itself: `ValueError` names what is too much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOPICS_MAX = 100_000
FILTER_SERVERS_MAX = 64
SETTINGS_MAX = 16
"""Fields of a topic's configuration."""
ATTRIBUTES_MAX = 64
"""Of one topic."""


def check_word(what: str, word: str) -> None:
    """Check a name; an empty one is none."""
    if problem := names.word_problem(what, word):
        raise WrongError(problem)


def check_filter_servers(servers: Sequence[str]) -> None:
    """Check the addresses of filter servers."""
    _check_count("filter servers", len(servers), FILTER_SERVERS_MAX)
    for server in servers:
        check_word("filter server", server)


def check_topics(topics: Mapping[str, Mapping[str, object]]) -> None:
    """Check the table of a broker's topics."""
    _check_count("topics", len(topics), TOPICS_MAX)
    for name, settings in topics.items():
        if len(name) > names.FOREIGN_TOPIC_SIZE_MAX:
            raise WrongError(
                f"a topic's name has {len(name)} characters, at most {names.FOREIGN_TOPIC_SIZE_MAX}"
            )
        if not name.isprintable():
            raise WrongError("a topic's name has characters that cannot be printed")
        _check_settings(settings)


def bytes_of(topics: Mapping[str, Mapping[str, object]]) -> int:
    """Return about how many bytes a table of topics takes in memory."""
    return sum(
        512 + len(name) + sum(_size(value) for value in settings.values())
        for name, settings in topics.items()
    )


def _check_settings(settings: Mapping[str, object]) -> None:
    _check_count("settings of a topic", len(settings), SETTINGS_MAX)
    for key, value in settings.items():
        if isinstance(value, str) and key != "topicName":
            check_word(f"topic's {key}", value)
        elif isinstance(value, dict):
            _check_count("attributes of a topic", len(value), ATTRIBUTES_MAX)
            for name, text in value.items():
                check_word("attribute", name)
                check_word("attribute's value", str(text))


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(128 + len(key) + len(str(text)) for key, text in value.items())
    return 0


def _check_count(what: str, count: int, count_max: int) -> None:
    if count > count_max:
        raise WrongError(f"{count} {what}, at most {count_max}")
