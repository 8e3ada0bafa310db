"""Staged batches as they plug in: two request codes and their rights."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_broker.features.feature import Feature
from imago_broker.features.sinks.staging import StagingProcessor
from imago_broker.metrics import counter
from imago_broker.model import feature_level
from imago_broker.processors.rocketmq.access.rights import send, topic
from imago_broker.processors.rocketmq.installed import Installed
from imago_broker.processors.rocketmq.needs import PUBLISH
from imago_broker.processors.rocketmq.rows import Row
from imago_broker.service.access.throttling import Direction
from imago_broker.service.metaq_transactions.staged_batches import StagedBatches
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly


def install(parts: RocketmqAssembly) -> Installed:
    """Stage and publish."""
    transactions = parts.broker.metaq_transactions
    transactions.writer.delay = parts.delays.levels
    staged = StagedBatches(
        transactions, parts.broker.messages, clock=parts.broker.clock, loop=parts.broker.loop
    )
    staging = StagingProcessor(
        staged,
        transactions,
        topics=parts.broker.topics,
        on_topic_made=parts.names.on_topic_made,
        clock=parts.broker.clock,
        settings=parts.settings,
    )
    return Installed(
        parts=staged,
        rows=[
            Row(Code.IMAGO_STAGE_BATCH, staging.stage, parts.lanes.send, Asks.CHANGE),
            Row(Code.IMAGO_PUBLISH_STAGED, staging.publish, parts.lanes.transaction, Asks.CHANGE),
        ],
        samples=[
            counter(
                "sink_batches_published",
                "Micro-batches of transactional sinks that this broker has published.",
                lambda: transactions.counts.published,
            )
        ],
        start=staged.start,
        stop=staged.stop,
    )


SINKS: Final = Feature(
    level=feature_level.PUBLISHED_BY_MARK,
    rights=MappingProxyType(
        {
            Code.IMAGO_STAGE_BATCH: send,
            # Of the other topics that it means it is asked once they are known.
            Code.IMAGO_PUBLISH_STAGED: topic(PUBLISH),
        }
    ),
    limited=MappingProxyType(
        dict.fromkeys((Code.IMAGO_STAGE_BATCH, Code.IMAGO_PUBLISH_STAGED), Direction.PRODUCER)
    ),
    install=install,
)
