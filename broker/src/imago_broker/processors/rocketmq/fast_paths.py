"""What serves sends and pulls without a command object, each made of the parts that it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.pull.directions import Directions
from imago_broker.processors.rocketmq.pull.pull import PullProcessor, PullReading
from imago_broker.processors.rocketmq.pull.pull_path import PullPath
from imago_broker.processors.rocketmq.send.send_path import SendPath

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.processors.rocketmq.rows import Table


def build_send_path(parts: RocketmqAssembly, table: Table) -> SendPath:
    """Build the fast path of sends; `table` serves what it leaves."""
    return SendPath(
        puts=parts.puts,
        transactions=parts.transactions.service,
        this=parts.this,
        lanes=parts.lanes,
        table=table,
    )


def pull_reading(parts: RocketmqAssembly) -> PullReading:
    """Return what every pull needs."""
    return PullReading(
        store=parts.broker.store,
        topics=parts.broker.topics,
        hold=parts.delivery.hold,
        resets=parts.clients.resets,
        serving_rules=parts.broker.serving_rules,
        directions=Directions(
            identity=parts.identity,
            registry=parts.broker.registry,
            serving_rules=parts.broker.serving_rules,
            memory=parts.delivery.memory,
        ),
        traffic=parts.delivery.traffic,
        settings=parts.settings,
    )


def build_pull_path(parts: RocketmqAssembly, table: Table, processor: PullProcessor) -> PullPath:
    """Build the fast path of pulls; `table` serves what it leaves."""
    return PullPath(
        processor,
        groups=parts.broker.groups,
        lane=parts.lanes.pull,
        table=table,
        left_out=parts.names.static_topics.known,
    )
