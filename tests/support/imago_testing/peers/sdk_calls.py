"""Calls that SDKs make, as messages, and what a test asks of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_testing.peers.sdk_peer import HEADERS, SdkPeer
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import duration, make

if TYPE_CHECKING:
    from collections.abc import Mapping


def named(name: str) -> Any:
    return make("Resource", name=name)


def message(topic: str = "plain", body: bytes = b"body", **told: Any) -> Any:
    made = make("Message", topic=named(topic), body=body)
    system = made.system_properties
    system.message_id = told.pop("message_id", "01AA")
    system.message_type = told.pop("message_type", 1)
    made.user_properties.update(told.pop("properties", {}))
    for name, value in told.items():
        if name == "keys":
            system.keys.extend(value)
        elif isinstance(value, str):
            setattr(system, name, value)
        else:
            getattr(system, name).CopyFrom(value)
    return made


def sends(*messages: Any) -> Any:
    return make("SendMessageRequest", messages=messages)


def asks(group: str = "readers", topic: str = "plain", **told: Any) -> Any:
    request = make(
        "ReceiveMessageRequest",
        group=named(group),
        message_queue=make("MessageQueue", topic=named(topic)),
        batch_size=told.pop("batch_size", 32),
        auto_renew=told.pop("auto_renew", False),
        invisible_duration=duration(told.pop("invisible_ms", 20_000)),
        long_polling_timeout=duration(5_000),
    )
    request.filter_expression.type = told.pop("kind", 1)
    request.filter_expression.expression = told.pop("expression", "*")
    return request


async def received(
    peer: SdkPeer, request: Any, headers: Mapping[str, str] = HEADERS
) -> tuple[int, list[Any]]:
    """Return the status of a receive and its messages; its shape is as the original's."""
    number = peer.start("ReceiveMessage", request, headers)
    answers = await peer.answers(number, "ReceiveMessageResponse")
    kinds = [answer.WhichOneof("content") for answer in answers]
    assert kinds == ["status", *["message"] * (len(answers) - 2), "delivery_timestamp"]
    return answers[0].status.code, [answer.message for answer in answers[1:-1]]


def entries(*messages: Any) -> Any:
    return [
        make(
            "AckMessageEntry",
            message_id=one.system_properties.message_id,
            receipt_handle=one.system_properties.receipt_handle,
        )
        for one in messages
    ]


async def acknowledged(
    peer: SdkPeer,
    *messages: Any,
    group: str = "readers",
    topic: str = "plain",
    headers: Mapping[str, str] = HEADERS,
) -> Any:
    request = make(
        "AckMessageRequest", group=named(group), topic=named(topic), entries=entries(*messages)
    )
    return await peer.call("AckMessage", request, headers)


def producer(*topics: str) -> Any:
    command = make("TelemetryCommand")
    command.settings.client_type = 1
    command.settings.publishing.topics.extend(named(topic) for topic in topics)
    return command


def consumer(group: str, *topics: str, kind: int = 3) -> Any:
    command = make("TelemetryCommand")
    command.settings.client_type = kind
    command.settings.subscription.group.name = group
    for topic in topics:
        entry = command.settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.expression = "*"
    return command


async def telemetry(peer: SdkPeer, command: Any, headers: Mapping[str, str] = HEADERS) -> int:
    """Open a telemetry stream; return its number once the settings are answered."""
    number, head = peer.frames.begin("Telemetry", headers)
    peer.writer.write(head + peer.frames.data(number, command.SerializeToString(), end=False))
    answer = await peer.message(number, "TelemetryCommand")
    assert answer.status.code == SdkCode.OK, answer
    return number
