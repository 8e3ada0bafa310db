"""The list of all features, and what comes of it where the broker is put together."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_broker.features.delays.feature import DELAYS
from imago_broker.features.pop.feature import POP, PopServices
from imago_broker.features.request_reply.feature import REQUEST_REPLY
from imago_broker.features.sinks.feature import SINKS
from imago_broker.features.tiered.feature import TIERED
from imago_broker.features.transactions.feature import TRANSACTIONS
from imago_broker.model import feature_level
from imago_broker.processors.rocketmq.access.access_hook import LIMITED as COMMON_LIMITED
from imago_broker.processors.rocketmq.access.rights import COMMON_RIGHTS
from imago_broker.processors.rocketmq.exchange import Reply
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.features.feature import Feature
    from imago_broker.processors.rocketmq.access.rights import Right
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.processors.rocketmq.exchange import Exchange
    from imago_broker.processors.rocketmq.installed import Installed
    from imago_broker.processors.rocketmq.rows import Row
    from imago_broker.service.access.throttling import Direction

FEATURES: Final[tuple[Feature, ...]] = (DELAYS, TRANSACTIONS, POP, REQUEST_REPLY, SINKS, TIERED)
"""In the order in which they start; they stop in the reverse one."""

BROKER_RIGHTS: Final[Mapping[int, Right]] = MappingProxyType(
    dict(COMMON_RIGHTS) | {code: right for each in FEATURES for code, right in each.rights.items()}
)
"""What each request code of a broker needs a right to."""

LIMITED: Final[Mapping[int, Direction]] = MappingProxyType(
    dict(COMMON_LIMITED) | {code: way for each in FEATURES for code, way in each.limited.items()}
)
"""Requests whose rate and bytes may be limited."""


def install(parts: RocketmqAssembly) -> None:
    """Make all features in one broker."""
    made = (_from_its_level(each, parts) for each in FEATURES)
    parts.features.extend(each for each in made if each is not None)


def _from_its_level(feature: Feature, parts: RocketmqAssembly) -> Installed | None:
    """Make a feature whose requests are refused while an older broker is in the cluster."""
    made = feature.install(parts)
    if made is None or feature.level == feature_level.FIRST:
        return made
    view = parts.broker.registry.view

    def served(row: Row) -> Row:
        def handle(exchange: Exchange) -> Reply | None:
            why = feature_level.waits_for(feature.level, view().feature_level)
            return row.handle(exchange) if why is None else Reply(ResponseCode.SYSTEM_ERROR, why)

        return replace(row, handle=handle)

    return replace(made, rows=[served(row) for row in made.rows])


def popping_of(parts: RocketmqAssembly) -> PopServices:
    """Return what POP is made of, for the ports of other protocols that consume by it."""
    return next(each.parts for each in parts.features if isinstance(each.parts, PopServices))
