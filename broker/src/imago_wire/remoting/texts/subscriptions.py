"""TAG expressions: `*`, or tags joined with `||`, as subscriptions and for filtering."""

from __future__ import annotations

from typing import Final

from imago_wire.errors import ProtocolError
from imago_wire.record_format.tags import java_hash, named_tags
from imago_wire.remoting.bodies.client import SubscriptionData

ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"


def tag_subscription(topic: str, expression: str | None, version_ms: int) -> SubscriptionData:
    """Return the subscription that a TAG expression means, as Java reads it.

    One that names only blanks selects nothing. ProtocolError: it has nothing but separators.
    """
    if not expression or expression == ALL:
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version_ms)
    if not expression.replace("||", ""):
        raise ProtocolError("subString split error")
    tags = named_tags(expression)
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        sub_version=version_ms,
        tags_set=tags,
        code_set=frozenset(map(java_hash, tags)),
    )
