"""Bodies about clients: heart beats, groups, connections, locks, what runs inside a consumer."""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from imago_wire.remoting.bodies.fields import Body, body, key_body
from imago_wire.remoting.fields import wire
from imago_wire.remoting.peer import Language


@key_body
class MessageQueue(Body):
    """One queue of a topic on one broker name; ordered as all clients sort them."""

    topic: str
    broker_name: str
    queue_id: int


class ConsumeType(Enum):
    """How a consumer gets its messages; the C++ client writes the place in this list."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(Enum):
    """Whether a group shares its messages; the C++ client writes the place in this list."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(Enum):
    """Where a group without an offset begins; the C++ client writes the place in this list."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@body
class SubscriptionData(Body):
    """What a consumer wants of a topic. `sub_version` in ms; `code_set` holds tag hashes."""

    class_filter_mode: bool = False
    code_set: frozenset[int] = frozenset()
    expression_type: str = "TAG"
    sub_string: str = "*"
    sub_version: int = 0
    tags_set: frozenset[str] = frozenset()
    topic: str


@body
class ConsumerData(Body):
    """One consumer group of a client."""

    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    group_name: str
    message_model: MessageModel = MessageModel.CLUSTERING
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@body
class ProducerData(Body):
    group_name: str


@body
class HeartbeatData(Body):
    """All groups of one client. The last two fields come from 5.x."""

    client_id: str = wire("clientID")
    consumer_data_set: tuple[ConsumerData, ...] = ()
    producer_data_set: tuple[ProducerData, ...] = ()
    heartbeat_fingerprint: int | None = None
    without_sub: bool | None = None


@body
class CheckClientRequestBody(Body):
    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData


@body
class GetConsumerListByGroupResponseBody(Body):
    consumer_id_list: tuple[str, ...] = ()


@body
class LockBatchRequestBody(Body):
    """Also the body of an unlock."""

    client_id: str
    consumer_group: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool | None = None


UnlockBatchRequestBody = LockBatchRequestBody


@body
class LockBatchResponseBody(Body):
    """The queues that the asking client holds now."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = wire("lockOKMQSet", default=())


@body
class Connection(Body):
    """One connected client."""

    client_addr: str
    client_id: str
    language: Language = Language.UNKNOWN
    version: int = 0


@body
class ConsumerConnection(Body):
    """The members of a consumer group and what they subscribe to."""

    connection_set: tuple[Connection, ...] = ()
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: Mapping[str, SubscriptionData] = field(default_factory=dict)


@body
class ProducerConnection(Body):
    connection_set: tuple[Connection, ...] = ()


@body
class ProducerInfo(Body):
    """One producer; `last_update_timestamp` in ms."""

    client_id: str
    language: Language = Language.UNKNOWN
    last_update_timestamp: int = 0
    remote_ip: str = wire("remoteIP")
    version: int = 0


@body
class ProducerTableInfo(Body):
    """Producers by group."""

    data: Mapping[str, tuple[ProducerInfo, ...]] = field(default_factory=dict)


@body
class GroupList(Body):
    group_list: tuple[str, ...] = ()


@body
class QuerySubscriptionResponseBody(Body):
    group: str
    subscription_data: SubscriptionData | None = None
    topic: str


@body
class ConsumerRunningInfo(Body):
    """What a client says of its own consumer. A broker relays the bytes unchanged.

    The tables stay as they were parsed, since clients of other languages fill them differently;
    keys of `mq_table` and `mq_pop_table` are queues.
    """

    jstack: str | None = None
    mq_pop_table: Mapping[MessageQueue, Any] | None = None
    mq_table: Mapping[MessageQueue, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    status_table: Mapping[str, Any] = field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    user_consumer_info: Mapping[str, str] | None = None


class ConsumeResult(Enum):
    """How a message went that was consumed on demand."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


@body
class ConsumeMessageDirectlyResult(Body):
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: int = 0
