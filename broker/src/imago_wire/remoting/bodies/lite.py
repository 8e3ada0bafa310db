"""Bodies about lite topics (5.5): which of them a client wants."""

from __future__ import annotations

from enum import Enum

from imago_wire.remoting.bodies.fields import Body, body


class LiteAction(Enum):
    """What becomes of those that a client wanted so far; in the order of their numbers."""

    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


class OffsetOptionType(Enum):
    """What the number of an option is."""

    POLICY = "POLICY"
    OFFSET = "OFFSET"
    TAIL_N = "TAIL_N"
    TIMESTAMP = "TIMESTAMP"


@body
class OffsetOption(Body):
    """Where a group is to go on in lite topics that are added."""

    type: OffsetOptionType = OffsetOptionType.POLICY
    value: int = 0


@body
class LiteSubscription(Body):
    """One client's lite topics of a topic."""

    action: LiteAction
    client_id: str
    group: str
    topic: str
    lite_topic_set: frozenset[str] = frozenset()
    offset_option: OffsetOption | None = None
    version: int = 0


@body
class LiteSubscriptionCtlRequestBody(Body):
    """Of LITE_SUBSCRIPTION_CTL."""

    subscription_set: tuple[LiteSubscription, ...] = ()
