"""Whether consumers' calls may go a fast path, past the table of requests."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from imago_broker.processors.grpc import checks
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.rocketmq.needs import needs_to_consume
from imago_broker.service.serving_rules import Asks
from imago_wire.grpc.messages import make

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.model.access.access import Need
    from imago_broker.processors.grpc.authentication import CallUsers
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.rocketmq.rows import Table

NAMES_KEPT_MAX = 1024
"""Pairs of topics and groups that are known to be right."""


class FastPath:
    """What the table would ask of a request; whoever is not let in goes to the table."""

    def __init__(self, users: CallUsers, table: Table, lane: str) -> None:
        """`lane`: in which the table serves the same."""
        self._users, self._table = users, table
        self.lane = table.lanes[lane]

    def serves(self) -> bool:
        """Whether requests are served here now, and nobody has to see them."""
        table = self._table
        if table.watched or self.lane.full:
            return False
        return table.serving_rules is None or table.serving_rules.refusal(Asks.CHANGE) is None

    def open_to(self, call: Call, topic: str, group: str) -> bool:
        """Whether a call's user may consume a topic in a group."""
        needs = named_needs(topic, group)
        return needs is not None and self._users.grant(call, needs)


@lru_cache(maxsize=NAMES_KEPT_MAX)
def named_needs(topic: str, group: str) -> Sequence[Need] | None:
    """Return what consuming a topic in a group needs; None: clients may not name them so."""
    try:
        checks.topic_name(make("Resource", name=topic))
        checks.group_name(make("Resource", name=group))
    except CallError:
        return None
    return needs_to_consume((topic, group))
