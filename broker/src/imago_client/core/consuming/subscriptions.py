"""What a consumer wants of a topic: `*`, tags joined with ||, or a SQL92 filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from imago_client.checks import check_text
from imago_client.errors import UsageError
from imago_client.naming import RETRY_PREFIX, check_name
from imago_wire.record_format.tags import java_hash, named_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL = "*"
TAG, SQL92 = "TAG", "SQL92"
"""RocketMQ's kinds of expressions."""


class Sql(str):
    """A SQL92 filter over properties, where a TAG expression may stand: `Sql("price > 5")`."""

    __slots__ = ()

    def __new__(cls, text: object) -> Self:
        """UsageError: `text` is no str."""
        if not isinstance(text, str):
            raise UsageError(f"Sql: {text!r} is no filter; write it as a str")
        return super().__new__(cls, text)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and what is wanted of it; no tags means every message, or those of the filter."""

    topic: str
    expression: str
    tags: frozenset[str]
    version: int
    """ms since 1970 when it was made: the newer one counts."""
    kind: str = TAG

    @property
    def codes(self) -> tuple[int, ...]:
        """The hashes by which the broker filters; the client filters by the tags themselves."""
        return tuple(sorted(java_hash(tag) for tag in self.tags))

    def accepts(self, tags: str | None) -> bool:
        return not self.tags or tags in self.tags


def group_subscriptions(
    topics: Mapping[str, str], group: str, version: int
) -> dict[str, Subscription]:
    """Return, by topic, what a member of a group wants: its own retry topic as well."""
    if not topics:
        raise UsageError("topics: a consumer needs at least one")
    wanted = {**topics, RETRY_PREFIX + group: ALL}
    return {topic: subscribe(topic, text, version) for topic, text in wanted.items()}


def subscribe(topic: str, expression: str, version: int) -> Subscription:
    """Return the subscription that an expression describes. UsageError: it names no tag.

    Whether a `Sql` filter is one, the broker says.
    """
    check_name("topic", topic)
    check_text("tags", expression)
    if isinstance(expression, Sql):
        if not expression.strip():
            raise UsageError("Sql: the filter is empty; `*` wants every message")
        return Subscription(topic, str(expression), frozenset(), version, SQL92)
    if expression in ("", ALL):
        return Subscription(topic, ALL, frozenset(), version)
    tags = named_tags(expression)
    if not tags:
        raise UsageError(f"tags {expression!r}: expected `*` or names joined with ||")
    return Subscription(topic, expression, tags, version)
