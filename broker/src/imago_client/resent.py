"""A stored message once more: to a topic, or to one group alone that gave it up.

To a group it goes through the group's retry topic, as a message does that a consumer gave back:
whoever reads the group's topics gets it, with the topic and the id that it had, tried no time yet.
No other group of the topic sees it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from imago_client.errors import UsageError
from imago_client.messages import Message
from imago_client.naming import DEAD_LETTER_PREFIX, RETRY_PREFIX
from imago_wire.record_format import properties as names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client.received import ReceivedMessage

_KEPT: Final = (names.TAGS, names.KEYS)


@dataclass(frozen=True, slots=True)
class Resent(Message):
    """What a producer sends for it; made by `to_topic` and `to_group`."""

    kept: Mapping[str, str] = field(default_factory=dict)
    """Of its properties those that a `Message` has no field for, or checks."""

    @classmethod
    def to_topic(cls, message: ReceivedMessage, topic: str) -> Self:
        """Return it as a new message, with an id of its own, that every group of the topic gets."""
        return cls(
            topic,
            message.body,
            ordering_key=message.properties.get(names.SHARDING_KEY),
            flag=message.stored.flag,
            properties=message.user_properties,
            kept=_kept(message, _KEPT),
        )

    @classmethod
    def to_group(cls, message: ReceivedMessage, group: str) -> Self:
        """Return it as this group alone gets it. UsageError: it does not say in which topic it was.

        It has the id that its producer gave it: who looks for that finds both.
        """
        kept = _kept(message, (*_KEPT, names.UNIQ_KEY, names.SHARDING_KEY))
        kept[names.RETRY_TOPIC] = origin(message)
        first = message.properties.get(names.ORIGIN_MESSAGE_ID) if _was_tried(message) else None
        kept[names.ORIGIN_MESSAGE_ID] = first or message.stored_id
        return cls(
            RETRY_PREFIX + group,
            message.body,
            flag=message.stored.flag,
            properties=message.user_properties,
            kept=kept,
        )

    def all_properties(self, unique_key: str) -> dict[str, str]:
        """Return the properties as they go on the wire."""
        return {**Message.all_properties(self, unique_key), **self.kept}


def origin(message: ReceivedMessage) -> str:
    """Return the topic to which a message was sent at first. UsageError: it does not say so."""
    if not _was_tried(message):
        return message.queue.topic
    said = message.properties
    if found := said.get(names.RETRY_TOPIC) or said.get(names.DLQ_ORIGIN_TOPIC):
        return found
    raise UsageError(
        f"{message.queue} offset {message.offset}: the message does not say in which topic it was"
    )


def _was_tried(message: ReceivedMessage) -> bool:
    """Whether it lies in a topic whose messages brokers tell the origin of."""
    return message.queue.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def _kept(message: ReceivedMessage, wanted: tuple[str, ...]) -> dict[str, str]:
    said = message.properties
    return {name: said[name] for name in wanted if name in said}
