"""A feature as one broker has it: what the broker's lists are made longer by."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.config import BrokerConfig
    from imago_broker.metrics import Sample
    from imago_broker.processors.rocketmq.rows import Row
    from imago_wire.hot import QueueTail


def _nothing() -> None:
    """Do nothing."""


def _stays(_: BrokerConfig) -> None:
    """Leave it as it was made."""


def _needs_none() -> int:
    return sys.maxsize


def _holds_none(_: Sequence[QueueTail]) -> None:
    """Hold nobody back who would have to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Rows, metrics, and what is to be done when something happens to the broker."""

    parts: Any
    """What it is made of, for those who know it."""
    rows: Sequence[Row]
    samples: Sequence[Sample] = ()
    start: Callable[[], None] = _nothing
    """This member has become the master, and sees all of its log."""
    stop: Callable[[], None] = _nothing
    """It is the master no more, or stops."""
    release: Callable[[], None] = _nothing
    """Answer now what waits for messages."""
    needed_from: Callable[[], int] = _needs_none
    """The log offset of the oldest record of which something has to come still."""
    told: Callable[[], Mapping[str, Any] | None] = _nothing
    """What a shard's status says of it; None: nothing."""
    arrived: Callable[[Sequence[QueueTail]], None] = _holds_none
    """Messages of queues can be read that could not: whoever waits for them is to look again."""
    log_shortened: Callable[[], None] = _nothing
    """The log has lost its oldest records."""
    apply: Callable[[BrokerConfig], None] = _stays
    """Settings have changed."""
