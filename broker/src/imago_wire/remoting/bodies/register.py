"""The body of REGISTER_BROKER: all topics of a broker, as JSON or compressed.

The compressed form is a zlib stream of blocks, each an i32 size and that many bytes: the data
version as JSON; an i32 count of topics and a block each, `name readQueues writeQueues perm
filterType attributes`; the list of filter servers as JSON; and, from senders of 5.0.0 on, an i32
count of queue mappings and a block of JSON each.
"""

import zlib
from struct import Struct, error
from typing import Any, Final

from imago_wire.crc import crc31
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.remoting import fastjson
from imago_wire.remoting.bodies.config import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from imago_wire.remoting.bodies.fields import Body, BodyError, body
from imago_wire.remoting.peer import Version

INFLATED_BYTES_MAX: Final = 16 << 20
"""What a compressed registration may inflate to: a hundred thousand topics, or one whole frame."""

_SIZE: Final = Struct(">i")
_ZLIB_FIRST_BYTE: Final = 0x78


@body
class RegisterBrokerBody(Body):
    filter_server_list: tuple[str, ...] = ()
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper


def decode_register_body(data: bytes, *, version: int, body_crc32: int = 0) -> RegisterBrokerBody:
    """Read a registration's body; whether it is compressed shows in its first byte.

    The header's own flag is no help: 5.x compresses while it says that it did not. Brokers before
    3.0.11 send their topics alone. A checksum of 0 is not checked. BodyError: the checksum differs,
    or the body is damaged or too large.
    """
    if body_crc32 and crc31(data) != body_crc32:
        raise BodyError("crc32 not match")
    if not data:
        return RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigSerializeWrapper())
    if version < Version.V3_0_11_SNAPSHOT:
        wrapper = TopicConfigSerializeWrapper.decode(data)
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    if data[0] != _ZLIB_FIRST_BYTE:
        return RegisterBrokerBody.decode(data)
    try:
        return _read_blocks(_inflated(data), mappings=version >= Version.V5_0_0)
    except (error, zlib.error, ProtocolError) as problem:
        raise BodyError(f"compressed registration: {problem}") from None


def encode_register_body(value: RegisterBrokerBody, *, version: int) -> bytes:
    """Return the compressed form, as a sender of this version writes it."""
    wrapper = value.topic_config_serialize_wrapper
    topics = [_topic_line(topic) for topic in wrapper.topic_config_table.values()]
    parts = [_block(wrapper.data_version.encode()), _SIZE.pack(len(topics)), *map(_block, topics)]
    parts.append(_block(fastjson.dump(list(value.filter_server_list))))
    if version >= Version.V5_0_0:
        mappings = list((wrapper.topic_queue_mapping_info_map or {}).values())
        parts += [_SIZE.pack(len(mappings)), *(_block(fastjson.dump(one)) for one in mappings)]
    return zlib.compress(b"".join(parts), 9)


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    inflated = inflater.decompress(data, INFLATED_BYTES_MAX + 1)
    if len(inflated) > INFLATED_BYTES_MAX:
        raise LimitExceededError("inflated", size=len(inflated), size_max=INFLATED_BYTES_MAX)
    if not inflater.eof:
        raise ProtocolError("it is cut")
    return inflated


class _Blocks:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        (number,) = _SIZE.unpack_from(self._data, self._at)
        self._at += _SIZE.size
        if number < 0:
            raise ProtocolError("negative size")
        return int(number)

    def block(self) -> bytes:
        end = self._at + _SIZE.size + self.number()
        if end > len(self._data):
            raise ProtocolError("it is cut")
        block, self._at = self._data[self._at : end], end
        return block


def _read_blocks(data: bytes, *, mappings: bool) -> RegisterBrokerBody:
    blocks = _Blocks(data)
    data_version = DataVersion.decode(blocks.block())
    topics = [_read_topic(blocks.block()) for _ in range(blocks.number())]
    filter_servers = fastjson.parse(blocks.block())
    infos = [fastjson.parse(blocks.block()) for _ in range(blocks.number())] if mappings else []
    wrapper = TopicConfigSerializeWrapper(
        data_version=data_version,
        topic_config_table={topic.topic_name: topic for topic in topics},
        topic_queue_mapping_info_map=_by_topic(infos),
    )
    return RegisterBrokerBody.from_json(
        {"filterServerList": filter_servers, "topicConfigSerializeWrapper": wrapper.to_json()}
    )


def _by_topic(infos: list[fastjson.Json]) -> dict[str, Any] | None:
    table = {
        str(info["topic"]): info for info in infos if isinstance(info, dict) and "topic" in info
    }
    return table or None


def _read_topic(line: bytes) -> TopicConfig:
    match line.decode(errors="replace").split(" ", 5):
        case [name, read_queues, write_queues, perm, filter_type, *attributes]:
            return TopicConfig.from_json(
                {
                    "topicName": name,
                    "readQueueNums": read_queues,
                    "writeQueueNums": write_queues,
                    "perm": perm,
                    "topicFilterType": filter_type,
                    "attributes": fastjson.parse(attributes[0]) if attributes else None,
                }
            )
        case _:
            raise ProtocolError(f"no topic: {line[:64]!r}")


def _topic_line(topic: TopicConfig) -> bytes:
    head = (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
        f" {topic.topic_filter_type}"
    )
    if topic.attributes is None:
        return head.encode()
    return head.encode() + b" " + fastjson.dump(dict(topic.attributes))


def _block(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data
