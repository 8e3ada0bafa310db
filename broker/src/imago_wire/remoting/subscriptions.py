"""TAG expressions: `*`, or tags joined with `||`, as subscriptions and for filtering."""

from __future__ import annotations

from typing import Final

from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.client import SubscriptionData
from imago_wire.tags import java_hash

ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"


def tag_subscription(topic: str, expression: str | None, version_ms: int) -> SubscriptionData:
    """Return the subscription that a TAG expression means; ProtocolError if it names no tag."""
    if not expression or expression == ALL:
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version_ms)
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags:
        raise ProtocolError("subString split error")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        sub_version=version_ms,
        tags_set=tags,
        code_set=frozenset(map(java_hash, tags)),
    )
