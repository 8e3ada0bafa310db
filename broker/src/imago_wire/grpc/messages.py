"""Messages of `apache.rocketmq.v2` as classes, the numbers that they use, and their times."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from google.protobuf.message import DecodeError

from imago_wire.errors import ProtocolError
from imago_wire.grpc.schema import classes

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
MESSAGES: Final[dict[str, Any]] = classes()
"""By name. Fields are read and set as attributes, as `schema` names them."""


class MessageType(IntEnum):
    """What a message is, and what a topic takes."""

    UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


class ClientType(IntEnum):
    """What a client is."""

    UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


class Permission(IntEnum):
    """Of a queue."""

    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4


class AddressScheme(IntEnum):
    """What hosts of endpoints are."""

    IPV4 = 1
    IPV6 = 2
    DOMAIN_NAME = 3


class Encoding(IntEnum):
    """Of a body."""

    IDENTITY = 1
    GZIP = 2


class Resolution(IntEnum):
    """How a transaction ends."""

    UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


SQL: Final = 2
"""The type of a filter expression that is no tags."""
MD5: Final = 2
NODE_JS: Final = 8
"""The language of a user agent."""
SERVER_CHECK: Final = 2
"""The source of an end that the broker has asked for."""


def parse(name: str, data: bytes) -> Any:
    """Return a message. ProtocolError: the bytes are none of its kind."""
    try:
        return MESSAGES[name].FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"no {name}: {str(error)[:100]}") from None


def make(name: str, /, **fields: Any) -> Any:
    """Return a new message with these fields."""
    return MESSAGES[name](**fields)


def encoded(message: Any) -> bytes:
    """Return a message as bytes."""
    data: bytes = message.SerializeToString()
    return data


def milliseconds(time: Any) -> int:
    """Return a duration or timestamp."""
    whole: int = time.seconds * 1000 + time.nanos // 1_000_000
    return whole


def timed(name: str, ms: int) -> Any:
    """Return a duration or timestamp of so many milliseconds."""
    seconds, rest = divmod(ms, 1000)
    return MESSAGES[name](seconds=seconds, nanos=rest * 1_000_000)


def duration(ms: int) -> Any:
    """Return a `Duration`."""
    return timed("Duration", ms)


def timestamp(ms: int) -> Any:
    """Return a `Timestamp`."""
    return timed("Timestamp", ms)
