"""The parts that the MetaQ processors are made from.

Processors do not see this: each takes by its constructor what it uses, and `table` hands that out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from imago_broker.config.live import LiveSettings
    from imago_broker.core.budget import OutputBudget
    from imago_broker.processors.metaq.identity import MetaqFace
    from imago_broker.processors.metaq.patterns import Patterns
    from imago_broker.processors.metaq.puts import WhenPublished
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqAssembly:
    """Made by the broker's `app`; for `table` alone."""

    face: MetaqFace
    patterns: LiveSettings[Patterns]
    messages: MessageService
    topics: TopicService
    transactions: MetaqTransactions
    rng: random.Random
    budget: OutputBudget
    connections: Callable[[], int]
    config_file: Callable[[], bytes]
    """The configuration in the form of MetaQ's own file."""
    when_published: WhenPublished
