"""What a broker's features are made of, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.features.pop.feature import PopServices
from imago_broker.features.tiered.tier import Tier

if TYPE_CHECKING:
    from imago_broker.app import Broker


def pop_of(broker: Broker) -> PopServices:
    """Return the parts of POP."""
    return next(
        each.parts for each in broker.rocketmq.features if isinstance(each.parts, PopServices)
    )


def tier_of(broker: Broker) -> Tier | None:
    """Return the tier of a broker that has one."""
    return next(
        (each.parts for each in broker.rocketmq.features if isinstance(each.parts, Tier)), None
    )
