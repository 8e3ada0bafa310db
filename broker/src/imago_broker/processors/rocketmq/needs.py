"""What the same need is called for topics and groups, and needs that more than one way in has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.model import names
from imago_broker.model.access.access import CLUSTER_NAME, READ, RUN, AccessKind, Need, Operation
from imago_wire.record_format.references import lite_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PUBLISH: Final = (Operation.PUBLISH,)
SUBSCRIBE: Final = (Operation.SUBSCRIBE,)
ALTER: Final = (Operation.ALTER,)
CREATE: Final = (Operation.CREATE,)
SET: Final = (Operation.CREATE, Operation.ALTER)


def of_topic(topic: str, operations: tuple[Operation, ...]) -> Need:
    """Return the need of a topic, or of the group or topic that it belongs to."""
    if topic.startswith(names.RETRY_PREFIX):
        return Need(
            _GROUPS.get(operations, operations), AccessKind.GROUP, topic.removeprefix("%RETRY%")
        )
    topic = lite_parent(topic) or topic
    if topic in names.WITHHELD_TOPICS:
        return Need(RUN, AccessKind.CLUSTER, CLUSTER_NAME)  # it has messages of all topics
    return Need(operations, AccessKind.TOPIC, topic)


_GROUPS: Final[Mapping[tuple[Operation, ...], tuple[Operation, ...]]] = {PUBLISH: SUBSCRIBE}
"""What of a retry topic is which right to its group."""


def of_group(group: str, operations: tuple[Operation, ...]) -> Need:
    """Return the need of a group."""
    return Need(operations, AccessKind.GROUP, group.removeprefix(names.RETRY_PREFIX))


def to_set(*, known: bool) -> tuple[Operation, ...]:
    """Return the operations of which one gives a topic or group its settings, whatever way it is.

    `create` is what RocketMQ asks for, of one that is there as well; `alter` makes no new one.
    """
    return SET if known else CREATE


def needs_to_send(topic: str) -> Sequence[Need]:
    """Return what a send to a topic needs, and the end of a transaction for it."""
    return (of_topic(topic, PUBLISH),)


def needs_to_consume(asked: tuple[str, str]) -> Sequence[Need]:
    """Return what a read of a topic in a group needs."""
    topic, group = asked
    return (of_topic(topic, SUBSCRIBE), of_group(group, SUBSCRIBE))


def needs_to_read(topic: str) -> Sequence[Need]:
    """Return what it needs to see messages of a topic without consuming them."""
    return (of_topic(topic, READ),)


def needs_to_reset(topic: str, group: str) -> Sequence[Need]:
    """Return what it needs to have a group go on elsewhere in a topic."""
    return (of_topic(topic, READ), of_group(group, ALTER))
