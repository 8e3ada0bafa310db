"""What the broker asks of SDKs over their telemetry streams, and what becomes of the answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.grpc import checks, client_channel
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.client_channel import ClientChannel
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make, parse
from imago_wire.records.record import StoredMessage
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.messages import encode_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_wire.remoting.command import RemotingCommand


class Stream:
    """A telemetry stream whose peer is the test."""

    peer = "10.0.0.1:5"
    address, certificate_user, born_host = "10.0.0.1", "", bytes(8)
    is_open = True

    def __init__(self) -> None:
        self.connection = self
        self.sent: list[Any] = []

    def send(self, messages: bytes, *, last: bool) -> None:
        assert not last
        self.sent.append(parse("TelemetryCommand", messages[5:]))

    def stored(self, message_id: bytes, offset: int) -> None:
        raise AssertionError(message_id, offset)

    def fail(self, status: int, text: str) -> None:
        raise AssertionError(status, text)

    def watch(self, watcher: Callable[[], None]) -> None: ...
    def unwatch(self, watcher: Callable[[], None]) -> None: ...
    def throttle(self, milliseconds: float) -> None: ...
    def close(self) -> None: ...


RECORD = encode_message(
    StoredMessage(
        size=0,
        topic="topic",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        flag=0,
        sys_flag=0,
        born_ms=0,
        born_host=bytes(8),
        store_ms=0,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_offset=0,
        body=b"body",
        body_crc=0,
        properties={"UNIQ_KEY": "01AA", "a": "b"},
    )
)


async def test_a_message_is_tried_by_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, answers = Stream(), list[Any]()
    channel = ClientChannel(stream, "", asyncio.get_running_loop())
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    for told, result in (
        (SdkCode.OK, "CR_SUCCESS"),
        (SdkCode.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (SdkCode.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
    ):
        channel.call(code, {}, RECORD, 50_000, answers.append)
        asked = stream.sent[-1].verify_message_command
        assert asked.message.body == b"body"
        assert dict(asked.message.user_properties) == {"a": "b"}
        channel.verified("unknown", told)
        channel.verified(asked.nonce, told)
        assert json.loads(answers[-1].body)["consumeResult"] == result
    monkeypatch.setattr(client_channel, "CALLS_MAX", 1)
    channel.call(code, {}, RECORD, 50_000, answers.append)
    channel.call(code, {}, RECORD, 50_000, answers.append)
    assert answers[-1] is None
    channel.gone()
    assert answers[-2:] == [None, None]


async def test_a_consumer_is_shown_without_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, or where a client does not say what its threads do."""
    monkeypatch.setattr(client_channel, "TRACE_MS_MAX", 1)
    stream, answers = Stream(), asyncio.Queue["RemotingCommand | None"]()
    channel = ClientChannel(stream, "", asyncio.get_running_loop())
    channel.describe({"properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}})
    for ext in ({}, {"jstackEnable": "false"}, {"jstackEnable": "true"}):
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        channel.call(code, ext, b"", 50_000, answers.put_nowait)
        told = await answers.get()
        assert told is not None
        assert json.loads(told.body) == {"properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}}
    assert len(stream.sent) == 1


async def test_threads_are_shown() -> None:
    stream, answers = Stream(), list["RemotingCommand | None"]()
    channel = ClientChannel(stream, "", asyncio.get_running_loop())
    jstack = {"jstackEnable": "true"}
    channel.call(RequestCode.GET_CONSUMER_RUNNING_INFO, jstack, b"", 50_000, answers.append)
    channel.traced(stream.sent[-1].print_thread_stack_trace_command.nonce, "main: here")
    assert answers[0] is not None
    assert json.loads(answers[0].body)["jstack"] == "main: here"
    channel.call(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {}, b"", 50_000, answers.append)
    assert answers[1] is None


async def test_orphans_are_asked_about() -> None:
    stream = Stream()
    channel = ClientChannel(stream, "", asyncio.get_running_loop())
    channel.notify(
        RequestCode.CHECK_TRANSACTION_STATE,
        {"transactionId": "01AA", "commitLogOffset": "7"},
        RECORD,
    )
    asked = stream.sent[0].recover_orphaned_transaction_command
    assert (asked.transaction_id, asked.message.body) == ("01AA@7", b"body")
    assert asked.message.system_properties.message_type == 4
    assert not asked.message.system_properties.receipt_handle
    channel.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {})
    channel.tell_reconnect()
    assert [each.WhichOneof("content") for each in stream.sent[1:]] == [
        "reconnect_endpoints_command"
    ]


def test_names_of_groups_have_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "GROUP_SIZE_MAX", 4)
    assert checks.group_name(make("Resource", name="abcd")) == "abcd"
    for name in ("abcde", "", "a b", "CID_RMQ_SYS_x"):
        with pytest.raises(CallError) as refused:
            checks.group_name(make("Resource", name=name))
        assert refused.value.code is SdkCode.ILLEGAL_CONSUMER_GROUP
