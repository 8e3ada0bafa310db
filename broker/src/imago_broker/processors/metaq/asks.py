"""What each command of the text protocol asks of the member of the shard that gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.service.serving_rules import Asks
from imago_wire.text.commands import (
    Auth,
    Command,
    Get,
    Offset,
    Put,
    Quit,
    Result,
    Stats,
    Sync,
    Transaction,
    Value,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ASKS: Final[Mapping[type[Command], Asks]] = {
    Put: Asks.CHANGE,
    Get: Asks.MESSAGES,
    Offset: Asks.MESSAGES,
    Quit: Asks.MEMBER,
    Stats: Asks.MEMBER,
    Version: Asks.MEMBER,
    Auth: Asks.MEMBER,
    # Answered alike by every member: that it is not served.
    Sync: Asks.MEMBER,
    Transaction: Asks.CHANGE,
    # Answers to nothing that was asked.
    Result: Asks.MEMBER,
    Value: Asks.MEMBER,
}
"""Producers learn of a new master from the registry's tree alone, whatever a refusal says: they
get the failure's own code and text. Consumers that are refused ask the same broker again until
the tree changes."""
