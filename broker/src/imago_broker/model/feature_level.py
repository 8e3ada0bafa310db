"""The feature level of a cluster: the newest behaviour that all of its brokers understand.

It stands in the registry, rises when a person or the operator says so and every member understands
the next one, and never falls. What older brokers would misread waits for its level
(docs/versions.md).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST: Final = 1
"""Of clusters and brokers that say nothing of it."""
PUBLISHED_BY_MARK: Final = 2
"""Sinks stage and publish micro-batches: older brokers do not read the mark."""
LIGHT_QUEUES: Final = 2
"""Messages go to light queues and lite topics: older brokers take references for messages."""
TIERED: Final = 2
"""Old files leave the disks for the bucket: older brokers would say that they are gone."""
NEWEST: Final = 2
"""What this version understands."""
LEVEL_MAX: Final = 1 << 15
"""What anybody may claim."""

NEWS: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "what version 0.1 has",
        2: "sinks publish micro-batches; light queues and lite topics; old files in a bucket",
    }
)
"""What each level switches on, for people."""


def too_old(level: int, *, own: int = NEWEST) -> str | None:
    """Say why a process may not work in a cluster of this level; None: it may."""
    if level <= own:
        return None
    return (
        f"the cluster is at feature level {level}, this version understands {own}: start a version"
        " that understands it (levels never go down)"
    )


def waits_for(level: int, stands: int) -> str | None:
    """Say what has to come before something of a level is done; None: nothing."""
    if stands >= level:
        return None
    return (
        f"the cluster is at feature level {stands}, this needs {level}: once every broker is"
        " upgraded, raise it (`imago cluster features --finalize`, or the operator does)"
    )
