"""Settings of members of a balanced group, and the names that they go by."""

from __future__ import annotations

import os
import re
import socket
import uuid
from dataclasses import dataclass
from typing import Final

from imago_client.checks import check_fields, check_positive
from imago_client.core.metaq.shares import ShareStrategy
from imago_client.errors import UsageError

_NO_GROUP: Final = re.compile(r"[~!#$%^&*()+=`'\",;/?\[\]<>.:\s]")
"""What the original lets no group's name hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqGroupConsumerConfig:
    """Settings of a member of a group; the names of the original's are in brackets."""

    group: str
    consumer_id: str | None = None
    """[consumerId] Made of host, process and chance where none is given."""
    strategy: ShareStrategy = ShareStrategy.DEFAULT
    """[loadBalanceStrategyType] All members of the group must have the same."""
    fetch_bytes: int = 1 << 20
    """[maxSize] Grows by itself where a message is larger."""
    delay_s_max: float = 5.0
    """[maxDelayFetchTimeInMills] Between fetches that find nothing, reached in ten steps."""
    commit_s: float = 5.0
    """[commitOffsetPeriodInMills]"""
    retries_max: int = 5
    """[maxFetchRetries] Failures of one message before it goes to the rejection policy."""
    from_end: bool = False
    """[setConsumeFromMaxOffset] Where nothing is stored: begin at the end."""
    always_from_end: bool = False
    """[setConsumeFromMaxOffset(true)] Begin at the end, whatever is stored."""
    drain_s: float = 5.0
    """How long a handler may go on with its message where the partition is given up."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_group(self.group)
        check_positive(self, "fetch_bytes", "delay_s_max", "commit_s")


def check_group(group: str) -> None:
    """Refuse what the original refuses. UsageError: it is no name of a group."""
    if not group or _NO_GROUP.search(group):
        raise UsageError(f"group: {group!r} is empty, or holds what a group's name may not hold")


def new_consumer_id() -> str:
    """Return an id as the original makes them."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4()}"


def broadcast_group(group: str) -> str:
    """Return the group of this machine alone, as the original names it."""
    host = socket.gethostname().replace(".", "-").replace(":", "-")
    return f"{group}-{host}"
