"""Messages and field numbers of `apache.rocketmq.v2`, and what makes classes of them.

A line is a message: `Name: number name type, …`. Types: `s` text, `b` bytes, `i` int32 (enums, too:
the bytes are the same), `l` int64, `B` bool, `f` float, `map` of texts, or another message. `*`
after a type: repeated. `?`: that it is there is told apart from its default, also of texts and
numbers. Fields in `{…}` are alternatives.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = "apache.rocketmq.v2"

MESSAGES: Final = """
Timestamp: 1 seconds l, 2 nanos i
Duration: 1 seconds l, 2 nanos i
Resource: 1 resource_namespace s, 2 name s
Status: 1 code i, 2 message s
Address: 1 host s, 2 port i
Endpoints: 1 scheme i, 2 addresses Address*
Broker: 1 name s, 2 id i, 3 endpoints Endpoints
MessageQueue: 1 topic Resource, 2 id i, 3 permission i, 4 broker Broker, 5 accept_message_types i*
FilterExpression: 1 type i, 2 expression s
SubscriptionEntry: 1 topic Resource, 2 expression FilterExpression
Digest: 1 type i, 2 checksum s
DeadLetterQueue: 1 topic s, 2 message_id s
SystemProperties: 1 tag s?, 2 keys s*, 3 message_id s, 4 body_digest Digest, 5 body_encoding i,
  6 message_type i, 7 born_timestamp Timestamp, 8 born_host s, 9 store_timestamp Timestamp,
  10 store_host s, 11 delivery_timestamp Timestamp, 12 receipt_handle s?, 13 queue_id i,
  14 queue_offset l?, 15 invisible_duration Duration, 16 delivery_attempt i?, 17 message_group s?,
  18 trace_context s?, 19 orphaned_transaction_recovery_duration Duration,
  20 dead_letter_queue DeadLetterQueue, 21 lite_topic s?, 22 priority i?
Message: 1 topic Resource, 2 user_properties map, 3 system_properties SystemProperties, 4 body b
Assignment: 1 message_queue MessageQueue
ExponentialBackoff: 1 initial Duration, 2 max Duration, 3 multiplier f
CustomizedBackoff: 1 next Duration*
RetryPolicy: 1 max_attempts i, {2 exponential_backoff ExponentialBackoff,
  3 customized_backoff CustomizedBackoff}
Publishing: 1 topics Resource*, 2 max_body_size i, 3 validate_message_type B
Subscription: 1 group Resource, 2 subscriptions SubscriptionEntry*, 3 fifo B?,
  4 receive_batch_size i?, 5 long_polling_timeout Duration, 6 lite_subscription_quota i?,
  7 max_lite_topic_size i?
UA: 1 language i, 2 version s, 3 platform s, 4 hostname s
Metric: 1 on B, 2 endpoints Endpoints
Settings: 1 client_type i?, 2 access_point Endpoints, 3 backoff_policy RetryPolicy,
  4 request_timeout Duration, {5 publishing Publishing, 6 subscription Subscription},
  7 user_agent UA, 8 metric Metric
QueryRouteRequest: 1 topic Resource, 2 endpoints Endpoints
QueryRouteResponse: 1 status Status, 2 message_queues MessageQueue*
SendMessageRequest: 1 messages Message*
SendResultEntry: 1 status Status, 2 message_id s, 3 transaction_id s, 4 offset l, 5 recall_handle s
SendMessageResponse: 1 status Status, 2 entries SendResultEntry*
QueryAssignmentRequest: 1 topic Resource, 2 group Resource, 3 endpoints Endpoints
QueryAssignmentResponse: 1 status Status, 2 assignments Assignment*
ReceiveMessageRequest: 1 group Resource, 2 message_queue MessageQueue,
  3 filter_expression FilterExpression, 4 batch_size i, 5 invisible_duration Duration,
  6 auto_renew B, 7 long_polling_timeout Duration, 8 attempt_id s?
ReceiveMessageResponse: {1 status Status, 2 message Message, 3 delivery_timestamp Timestamp}
AckMessageEntry: 1 message_id s, 2 receipt_handle s, 3 lite_topic s?
AckMessageRequest: 1 group Resource, 2 topic Resource, 3 entries AckMessageEntry*
AckMessageResultEntry: 1 message_id s, 2 receipt_handle s, 3 status Status
AckMessageResponse: 1 status Status, 2 entries AckMessageResultEntry*
ForwardMessageToDeadLetterQueueRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle s,
  4 message_id s, 5 delivery_attempt i, 6 max_delivery_attempts i, 7 lite_topic s?
ForwardMessageToDeadLetterQueueResponse: 1 status Status
HeartbeatRequest: 1 group Resource, 2 client_type i
HeartbeatResponse: 1 status Status
EndTransactionRequest: 1 topic Resource, 2 message_id s, 3 transaction_id s, 4 resolution i,
  5 source i, 6 trace_context s
EndTransactionResponse: 1 status Status
ThreadStackTrace: 1 nonce s, 2 thread_stack_trace s?
PrintThreadStackTraceCommand: 1 nonce s
ReconnectEndpointsCommand: 1 nonce s
VerifyMessageCommand: 1 nonce s, 2 message Message
VerifyMessageResult: 1 nonce s
RecoverOrphanedTransactionCommand: 1 message Message, 2 transaction_id s
TelemetryCommand: 1 status Status, {2 settings Settings, 3 thread_stack_trace ThreadStackTrace,
  4 verify_message_result VerifyMessageResult,
  5 recover_orphaned_transaction_command RecoverOrphanedTransactionCommand,
  6 print_thread_stack_trace_command PrintThreadStackTraceCommand,
  7 verify_message_command VerifyMessageCommand,
  8 reconnect_endpoints_command ReconnectEndpointsCommand,
  9 notify_unsubscribe_lite_command NotifyUnsubscribeLiteCommand}
NotifyClientTerminationRequest: 1 group Resource
NotifyClientTerminationResponse: 1 status Status
ChangeInvisibleDurationRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle s,
  4 invisible_duration Duration, 5 message_id s, 6 lite_topic s?, 7 suspend B?
ChangeInvisibleDurationResponse: 1 status Status, 2 receipt_handle s
OffsetOption: {1 policy i, 2 offset l, 3 tail_n l, 4 timestamp l}
SyncLiteSubscriptionRequest: 1 action i, 2 topic Resource, 3 group Resource, 4 lite_topic_set s*,
  5 version l?, 6 offset_option OffsetOption
SyncLiteSubscriptionResponse: 1 status Status
NotifyUnsubscribeLiteCommand: 1 lite_topic s
RecallMessageRequest: 1 topic Resource, 2 recall_handle s
RecallMessageResponse: 1 status Status, 2 message_id s
"""

_FIELD = re.compile(r"(\{)?(\d+) (\w+) (\w+)([*?])?(\})?")
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "s": _Field.TYPE_STRING,
    "b": _Field.TYPE_BYTES,
    "i": _Field.TYPE_INT32,
    "l": _Field.TYPE_INT64,
    "B": _Field.TYPE_BOOL,
    "f": _Field.TYPE_FLOAT,
}


def classes() -> dict[str, Any]:
    """Return the class of each message by its name. They share nothing with other programs' own."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    names = [line.partition(":")[0] for line in _lines()]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in names
    }


def _lines() -> Iterator[str]:
    """Yield a message each."""
    whole = ""
    for line in MESSAGES.strip().splitlines():
        if whole and not line.startswith(" "):
            yield whole
            whole = ""
        whole += line
    yield whole


def _file() -> Any:
    made = descriptor_pb2.FileDescriptorProto(
        name="imago/rocketmq_v2.proto", package=PACKAGE, syntax="proto3"
    )
    for line in _lines():
        name, _, fields = line.partition(": ")
        _describe(made.message_type.add(name=name), fields)
    return made


def _describe(message: Any, fields: str) -> None:
    presences, inside = [], False
    for begins, number, name, kind, mark, ends in _FIELD.findall(fields):
        made = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        _give_type(message, made, kind)
        if mark == "*":
            made.label = _Field.LABEL_REPEATED
        if begins:
            inside = True
            message.oneof_decl.add(name="content")
        if inside:
            made.oneof_index = 0
        inside = inside and not ends
        if mark == "?":
            presences.append(made)
    for made in presences:
        # What proto3 calls optional is an alternative of one.
        made.oneof_index = len(message.oneof_decl)
        made.proto3_optional = True
        message.oneof_decl.add(name=f"_{made.name}")


def _give_type(message: Any, field: Any, kind: str) -> None:
    if kind == "map":
        entry = message.nested_type.add(name="UserPropertiesEntry")
        entry.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            entry.field.add(
                name=name, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING
            )
        field.type, field.label = _Field.TYPE_MESSAGE, _Field.LABEL_REPEATED
        field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"
    elif kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
