"""All request codes that a broker serves to RocketMQ clients, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.rows import Table, build_table

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.services import RocketmqServices


@dataclass(frozen=True, slots=True)
class Processors:
    """What the two RocketMQ ports of a broker serve."""

    main: Table
    fast: Table
    """Of the port two below: no pulls."""


def build_processors(services: RocketmqServices) -> Processors:
    """Build the tables of both ports over the same services."""
    del services  # rows follow
    main = build_table([])
    return Processors(main=main, fast=main.for_fast_port())
