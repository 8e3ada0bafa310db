"""Messages whose properties say where they are put: of lite topics, and with a priority.

RocketMQ has both since 5.5, and puts them there for any producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.model.topics.attributes import MESSAGE_TYPE
from imago_wire.record_format import properties as props
from imago_wire.record_format.references import DISPATCH, lite_queue

if TYPE_CHECKING:
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.processors.rocketmq.send.sending import Sending
    from imago_broker.service.topics.topics import TopicService

_LITE: Final = props.LITE_TOPIC.encode()
_PRIORITY: Final = props.PRIORITY.encode()
_TYPES: Final = ("LITE", "PRIORITY")
_DIGITS: Final = 9


class PlacingTopics:
    """Whether any topic is of such a type: where none is, no message is looked at for it."""

    def __init__(self, topics: TopicService) -> None:
        self.names = {each.name for each in topics.all() if _is_placing(each)}
        """Those. Asked before `concern` is: a call for every read would be felt."""
        topics.on_change.append(self._changed)

    def concern(self, data: bytes | bytearray | memoryview) -> bool:
        """Whether a read may hold such a message, which goes the slow path."""
        found = data.tobytes() if isinstance(data, memoryview) else data
        return _LITE in found or _PRIORITY in found

    def _changed(self, name: str, config: TopicConfig | None) -> None:
        if config is not None and _is_placing(config):
            self.names.add(name)
        else:
            self.names.discard(name)


def _is_placing(config: TopicConfig) -> bool:
    return config.attributes.get(MESSAGE_TYPE) in _TYPES


def place_by_properties(sending: Sending, config: TopicConfig) -> None:
    """Have a message put where its properties say."""
    kind = config.attributes.get(MESSAGE_TYPE)
    if kind == "LITE" and (lite := props.find(sending.properties, _LITE)):
        name = lite_queue(sending.topic, lite.decode("utf-8", "replace"))
        rest = props.without(sending.properties, (DISPATCH,))
        sending.properties = b"%b\x01%b\x02%b" % (DISPATCH, name.encode(), rest)
    elif kind == "PRIORITY" and config.write_queues > 0:
        said = props.find(sending.properties, _PRIORITY) or b""
        if said.isdigit():
            # There is a queue for each; what is above the last goes there, too.
            sending.queue_id = min(int(said[:_DIGITS]), config.write_queues - 1)
