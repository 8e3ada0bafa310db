"""Setting a group's offsets so that its live consumers go on from there, by any tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_wire.remoting.bodies.client import MessageQueue
from imago_wire.remoting.bodies.stats import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.peer import Language, Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.groups.pull_hold import PullHold
    from imago_broker.service.groups.resets import PendingResets


@dataclass(slots=True, eq=False, kw_only=True)
class OffsetResetter:
    """Sets offsets for tools and for the admin interface."""

    identity: RocketmqIdentity
    offsets: ConsumerOffsets
    resets: PendingResets
    hold: PullHold
    clients: ClientRegistry

    def reset(
        self, group: str, topic: str, targets: Mapping[int, int], *, timestamp: int = -1
    ) -> None:
        """Set the queues' offsets; pulls and commits from the old places no longer count.

        The group's next pulls are sent to the new places. Members older than 5.0 are told as
        their own brokers tell them, so that they need not first pull.
        """
        self.offsets.reset(group, topic, targets)
        name = topic.encode()
        for queue_id, offset in targets.items():
            self.resets.add(group, topic, queue_id, offset)
            self.hold.look_again(name, queue_id)
        live = self.clients.consumers(group)
        if live is None:
            return
        ext = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "true"}
        broker = self.identity.broker_name
        for client in live.members.values():
            if Version.V3_0_7_SNAPSHOT <= client.version < Version.V5_0_0:
                cpp = client.language is Language.CPP
                form = body_for_c if cpp else body_of
                body = form(broker, topic, targets).encode()
                client.channel.notify(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, body)


def body_of(broker: str, topic: str, targets: Mapping[int, int]) -> ResetOffsetBody:
    """The new places as Java clients and tools read them."""
    return ResetOffsetBody(
        offset_table={MessageQueue(topic, broker, queue): place for queue, place in targets.items()}
    )


def body_for_c(broker: str, topic: str, targets: Mapping[int, int]) -> ResetOffsetBodyForC:
    """The new places as the C++ client reads them."""
    return ResetOffsetBodyForC(
        offset_table=tuple(
            MessageQueueForC(broker_name=broker, offset=place, queue_id=queue, topic=topic)
            for queue, place in targets.items()
        )
    )
