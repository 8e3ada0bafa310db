"""Half messages as the passes over them have it, and what a pass finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from imago_wire.record_format.entries import ENTRY_BODY, ENTRY_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_wire.record_format.entries import Entry


class Half:
    """One open half message, and what is being done about it."""

    __slots__ = (
        "asker",
        "checks",
        "ending",
        "entry",
        "form",
        "group",
        "immune_until_ms",
        "limited",
        "offset",
        "oneway",
        "opaque",
        "owner",
        "physical_offset",
        "tries",
        "unique",
        "waiting",
    )

    offset: int
    """In the queue of half messages."""
    physical_offset: int
    """Where its record is; -1: not looked up yet."""
    group: str
    """Of its producer; empty: not looked up yet."""
    owner: str
    """Who began it, and so whose share it is of; empty: one of a former leader."""
    unique: bytes
    """The id that its producer gave it."""
    immune_until_ms: int
    """Before this nobody asks its producer."""
    limited: bool
    """Its own immunity ends what its producer may say unasked."""
    checks: int
    """How often its producer was asked."""
    entry: Entry | None
    """It as it came, while that is kept."""
    ending: Any
    """The outcome that is being written down."""
    asker: Any
    """Who has reported that and is answered by `answer_ends`: None, or a connection."""
    opaque: int
    form: int
    oneway: bool
    waiting: list[Callable[[Any], None]] | None
    """Others who are told how the writing down went."""
    tries: int

    def __init__(
        self,
        offset: int,
        physical_offset: int = -1,
        group: str = "",
        unique: bytes = b"",
        immune_until_ms: int = 0,
        limited: bool = False,
        checks: int = 0,
    ) -> None:
        self.offset, self.physical_offset = offset, physical_offset
        self.group, self.unique, self.owner = group, unique, ""
        self.immune_until_ms, self.limited, self.checks = immune_until_ms, limited, checks
        self.entry, self.ending, self.asker, self.waiting = None, None, None, None
        self.opaque = self.form = self.tries = 0
        self.oneway = False


class ClosedHalves(NamedTuple):
    """What became of half messages that have ended together."""

    whose: list[tuple[str, str, int]]
    """Group of producers, owner, and how many half messages; the same may come several times."""
    outcomes: list[tuple[Any, int]]
    """How they ended, and how many so."""
    waiting: list[Half]
    """Those of which somebody waits to hear."""
    kept: int
    """How many messages had been kept."""
    size: int
    """Their bytes."""
    end: int
    """Behind the highest queue offset."""


def kept_size(entry: Entry) -> int:
    """Return the bytes of a message that is kept."""
    return len(entry[ENTRY_BODY]) + len(entry[ENTRY_PROPERTIES])
