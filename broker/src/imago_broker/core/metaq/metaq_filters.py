"""What a group of MetaQ's consumers gets of a topic, and which part of an answer it leaves.

MetaQ's brokers ask a Java class of the operator's; here it is an expression: `tags: red || blue`
compares the attribute, `sql: TAGS LIKE 'r%'` is SQL92 over it.

MetaQ closes the gaps that rejected messages leave, after which its own clients ask for positions
that are no borders. Here an answer is a run of accepted messages that begins where it was asked
for, or none: then the client is sent to the first accepted one, or behind all that were looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.config.metaq.metaq_ini import SQL, TAGS
from imago_broker.core.sql92.errors import FilterError
from imago_broker.core.sql92.filters import PropertyFilter
from imago_broker.model.topics.declared import check_declared
from imago_broker.model.topics.topics import METAQ_FILTER
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_broker.config import BrokerConfig

HEADER_SIZE: Final = 20
HAS_ATTRIBUTE: Final = 1
EXPRESSION_CHARS_MAX: Final = 4096
FILTERS_MAX: Final = 1000
"""Of one topic."""


class GroupFilter:
    """One compiled expression."""

    __slots__ = ("_sql", "_tags")

    def __init__(self, text: str) -> None:
        """FilterError says why the text is none."""
        if len(text) > EXPRESSION_CHARS_MAX:
            raise FilterError(f"{len(text)} characters, at most {EXPRESSION_CHARS_MAX}")
        self._sql: PropertyFilter | None = None
        self._tags: frozenset[bytes] = frozenset()
        if text.startswith(SQL):
            self._sql = PropertyFilter(text.removeprefix(SQL).strip())
        elif text.startswith(TAGS):
            named = [tag.strip() for tag in text.removeprefix(TAGS).split("||")]
            if not all(named):
                raise FilterError(f"{text!r:.80}: a tag is missing")
            self._tags = frozenset(tag.encode() for tag in named)
        else:
            raise FilterError(f"{text!r:.80}: must begin with `{TAGS}` or `{SQL}`")

    def accepts(self, attribute: bytes | None) -> bool:
        """Whether the group gets a message; None: it has no attribute."""
        if self._sql is None:
            return attribute is not None and attribute in self._tags
        return self._sql.matches(b"" if attribute is None else b"TAGS\x01%b\x02" % attribute)


def filters_of(attributes: Mapping[str, str]) -> dict[str, GroupFilter]:
    """Return the filters of a topic by group; FilterError names a wrong one."""
    named = [name for name in attributes if name.startswith(METAQ_FILTER)]
    if len(named) > FILTERS_MAX:
        raise FilterError(f"{len(named)} groups have filters, at most {FILTERS_MAX} may")
    found = {}
    for name in named:
        try:
            found[name.removeprefix(METAQ_FILTER)] = GroupFilter(attributes[name])
        except FilterError as error:
            raise FilterError(f"{name}: {error}") from error
    return found


def check_config(config: BrokerConfig) -> None:
    """Raise ValueError, with the key, for the first declared topic that cannot be."""
    check_declared(config.topics, config.metaq.topic_patterns)
    for name, settings in config.topics.items():
        for key, value in settings.items():
            if key.startswith("group."):
                try:
                    GroupFilter(str(value))
                except FilterError as error:
                    raise WrongError(f"topics.{name}.{key}: {error}") from error


class AcceptedRun(NamedTuple):
    """What a filter leaves of stored messages that follow each other."""

    start: int
    """Where the first accepted message begins; behind all whole ones where none is."""
    size: int
    """Bytes of the accepted ones that follow each other from there on."""


def first_run(data: bytes, wanted: GroupFilter) -> AcceptedRun:
    """Return the first run of accepted messages; what is cut at the end counts as not there."""
    start = end = 0
    for at, size, attribute in _messages(data):
        if wanted.accepts(attribute):
            end = at + size
        elif end > start:
            break
        else:
            start = end = at + size
    return AcceptedRun(start, end - start)


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes | None]]:
    at = 0
    while at + HEADER_SIZE <= len(data):
        size = HEADER_SIZE + int.from_bytes(data[at : at + 4], "big")
        if at + size > len(data):
            return
        yield at, size, _attribute(data[at + 16 : at + size])
        at += size


def _attribute(rest: bytes) -> bytes | None:
    """Return the attribute of a message, from its flag on; None where it is none, or torn."""
    if not int.from_bytes(rest[:4], "big") & HAS_ATTRIBUTE:
        return None
    size = int.from_bytes(rest[4:8], "big")
    return rest[8 : 8 + size] if 8 + size <= len(rest) else None
