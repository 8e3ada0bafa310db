"""What serves sends and pulls without a command object, each made of the parts that it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.pull.directions import Directions
from imago_broker.processors.rocketmq.pull.pull import PullProcessor, PullReading
from imago_broker.processors.rocketmq.pull.pull_path import PullPath
from imago_broker.processors.rocketmq.send.end_transaction_path import EndPath
from imago_broker.processors.rocketmq.send.placing import PlacingTopics
from imago_broker.processors.rocketmq.send.send_path import SendPath

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.processors.rocketmq.pull.subscriptions import MessageSelector
    from imago_broker.processors.rocketmq.rows import Table


def build_send_path(parts: RocketmqAssembly, table: Table) -> SendPath:
    """Build the short way of sends; `table` serves what it leaves."""
    return SendPath(
        messages=parts.broker.messages,
        handles=parts.broker.topics.handles,
        sequenced=parts.puts.sequenced,
        delay=parts.delays.levels,
        transactions=parts.transactions.service,
        identity=parts.identity,
        settings=parts.settings,
        lane=parts.lanes.send,
        table=table,
        ends=EndPath(parts.transactions.service, parts.lanes.transaction, table),
        placing=PlacingTopics(parts.broker.topics),
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


def build_pull_path(
    parts: RocketmqAssembly, table: Table, processor: PullProcessor, selector: MessageSelector
) -> PullPath:
    """Build the short way of pulls; `table` serves what it leaves."""
    return PullPath(
        processor.reading,
        groups=parts.broker.groups,
        selector=selector,
        offsets=parts.broker.offsets,
        budget=parts.broker.budget,
        lane=parts.lanes.pull,
        table=table,
        processor=processor,
        left_out=parts.names.static_topics.known,
    )
