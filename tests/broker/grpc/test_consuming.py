"""What consumers of RocketMQ 5's SDKs get and say: settings, polls, receipts; codes and limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.model.groups import GroupConfig
from imago_broker.processors.grpc import clients, settings
from imago_broker.processors.grpc.consuming import (
    acknowledging,
    plain_receives,
    receipts,
)
from imago_testing.peers.sdk_calls import (
    acknowledged,
    asks,
    consumer,
    message,
    named,
    producer,
    received,
    sends,
    telemetry,
)
from imago_testing.peers.sdk_peer import HEADERS, SdkPeer
from imago_wire.grpc import frames
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import NODE_JS, duration, make, milliseconds, timestamp
from imago_wire.remoting.peer import version_name

if TYPE_CHECKING:
    from imago_broker.app import Broker


HOUR = 3600 * 1000


async def test_a_message_goes_there_and_back(peer: SdkPeer) -> None:
    sent = await peer.call(
        "SendMessage",
        sends(
            message(
                tag="t",
                keys=["k1", "k2"],
                properties={"a": "b"},
                born_timestamp=timestamp(1_700_000_000_123),
                born_host="h",
            )
        ),
    )
    (entry,) = sent.entries
    assert (sent.status.code, entry.status.code) == (SdkCode.OK, SdkCode.OK)
    assert (entry.message_id, entry.transaction_id, entry.offset) == ("01AA", "01AA", 0)
    code, (got,) = await received(peer, asks())
    assert code == SdkCode.OK
    told = got.system_properties
    assert (got.topic.name, got.body, dict(got.user_properties)) == ("plain", b"body", {"a": "b"})
    assert (told.message_id, told.tag, list(told.keys)) == ("01AA", "t", ["k1", "k2"])
    assert (told.born_host, milliseconds(told.born_timestamp)) == ("h", 1_700_000_000_123)
    assert (told.message_type, told.body_encoding) == (1, 1)
    assert told.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"
    assert told.HasField("queue_offset")
    assert told.delivery_attempt == 1
    assert len(told.receipt_handle.split(" ")) == 9
    for _ in range(2):  # within its time it is good twice
        ack = await acknowledged(peer, got)
        assert (ack.status.code, ack.entries[0].status.code) == (SdkCode.OK, SdkCode.OK)
    assert await received(peer, asks()) == (SdkCode.MESSAGE_NOT_FOUND, [])


async def test_settings_are_answered_with_the_brokers_values(peer: SdkPeer) -> None:
    number, head = peer.frames.begin("Telemetry")
    first = producer("plain").SerializeToString()
    peer.writer.write(head + peer.frames.data(number, first, end=False))
    for _ in range(2):  # also when they are said again
        answer = await peer.message(number, "TelemetryCommand")
        told = answer.settings
        assert answer.status.code == SdkCode.OK
        assert told.publishing.max_body_size == 4 << 20
        assert told.publishing.validate_message_type
        assert told.publishing.topics[0].name == "plain"
        assert told.backoff_policy.max_attempts == settings.SEND_ATTEMPTS
        assert not told.metric.on
        peer.writer.write(peer.frames.data(number, first, end=False))
    other = await SdkPeer.connect(peer.writer.get_extra_info("peername")[1])
    number, head = other.frames.begin("Telemetry")
    asked = consumer("readers", "plain").SerializeToString()
    other.writer.write(head + other.frames.data(number, asked, end=False))
    told = (await other.message(number, "TelemetryCommand")).settings
    assert told.subscription.receive_batch_size == 32
    assert told.subscription.long_polling_timeout.seconds == 20
    assert not told.subscription.fifo
    assert told.backoff_policy.max_attempts == 17
    assert [one.seconds for one in told.backoff_policy.customized_backoff.next][:3] == [1, 5, 10]
    await other.close()


def test_a_client_that_takes_no_list_of_waits_gets_growing_ones() -> None:
    told = consumer("readers", "plain", kind=2).settings
    group = GroupConfig(name="readers", retry_max_times=3)
    listed = settings.merged_settings(told, group, 1).backoff_policy
    told.user_agent.language = NODE_JS
    grown = settings.merged_settings(told, group, 1).backoff_policy
    assert listed.max_attempts == grown.max_attempts == 4
    waits = [milliseconds(wait) for wait in listed.customized_backoff.next]
    found = grown.exponential_backoff
    assert (milliseconds(found.initial), milliseconds(found.max)) == (waits[0], waits[-1])


@pytest.mark.parametrize(
    ("times", "attempts"), [(-1, 1), (0, 1), (16, 17), ((1 << 31) - 1, (1 << 31) - 1)]
)
def test_a_client_is_told_how_often_its_group_is_tried(times: int, attempts: int) -> None:
    told = consumer("readers", "plain").settings
    group = GroupConfig(name="readers", retry_max_times=times)
    assert settings.merged_settings(told, group, 1).backoff_policy.max_attempts == attempts


async def test_a_group_whose_messages_are_never_tried_again_gets_each_once(
    peer: SdkPeer, broker: Broker
) -> None:
    for times in (-1, 0, (1 << 31) - 1):
        broker.groups.update(GroupConfig(name="readers", retry_max_times=times))
        await peer.call("SendMessage", sends(message("plain", message_id=f"0{times + 2:x}")))
        code, found = await received(peer, asks())
        assert (code, len(found)) == (SdkCode.OK, 1)
        await acknowledged(peer, found[0])


@pytest.mark.parametrize(
    "policy",
    [
        {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 10**19, "max": 10**40}},
        {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"max": 9000, "multiplier": 10**400}},
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [10**20, 1000]}},
        "[" * 30_000,
    ],
)
def test_a_policy_of_very_large_numbers_keeps_no_client_out(policy: object) -> None:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    group = GroupConfig(name="readers", attributes={settings.RETRY_POLICY: text})
    for language in ("JAVA", NODE_JS):
        told = consumer("readers", "plain").settings
        if language == NODE_JS:
            told.user_agent.language = NODE_JS
        found = settings.merged_settings(told, group, 1).backoff_policy
        waits = [*found.customized_backoff.next, found.exponential_backoff.max]
        assert found.max_attempts == 17
        assert all(milliseconds(wait) <= 365 * 24 * 3_600_000 for wait in waits)


@pytest.mark.parametrize(
    ("language", "renewed", "got"), [("GO", True, 1), ("GO", False, 3), ("JAVA", True, 3)]
)
async def test_gos_push_consumers_get_an_ordered_groups_messages_one_by_one(
    peer: SdkPeer, broker: Broker, language: str, got: int, *, renewed: bool
) -> None:
    """They work at once on all that they get."""
    broker.groups.update(GroupConfig(name="readers", consume_message_orderly=True))
    told = [message("ordered", message_group="one", message_id=f"0{n}") for n in range(3)]
    await peer.call("SendMessage", sends(*told))
    headers = {**HEADERS, "x-mq-language": language}
    _, found = await received(peer, asks(topic="ordered", auto_renew=renewed), headers)
    assert len(found) == got


@pytest.mark.parametrize("command", [make("TelemetryCommand", settings=make("Settings"))])
async def test_settings_that_cannot_be_end_the_stream(peer: SdkPeer, command: Any) -> None:
    for said in (command, producer("a b"), consumer("", "plain")):
        number, head = peer.frames.begin("Telemetry")
        data = said.SerializeToString()
        peer.writer.write(head + peer.frames.data(number, data, end=False))
        await peer.answers(number, "TelemetryCommand")
        assert peer.trailers[number]["grpc-status"] == "3"


async def test_clients_are_shown_beside_those_of_the_remoting_protocol(
    peer: SdkPeer, broker: Broker
) -> None:
    registry = broker.rocketmq.clients.registry
    beat = make("HeartbeatRequest", client_type=1)
    answer = await peer.call("Heartbeat", beat)
    assert answer.status.code == SdkCode.UNRECOGNIZED_CLIENT_TYPE
    said = HEADERS | {"x-mq-client-version": "5.1.2"}
    number = await telemetry(peer, consumer("readers", "plain"), said)
    group = registry.consumers("readers")
    assert group is not None
    assert group.client_ids == [HEADERS["x-mq-client-id"]]
    (member,) = group.members.values()
    assert version_name(member.version) == "V5_1_2"
    assert list(group.subscriptions) == ["plain"]
    beat = make("HeartbeatRequest", group=named("readers"), client_type=3)
    assert (await peer.call("Heartbeat", beat)).status.code == SdkCode.OK
    ending = make("NotifyClientTerminationRequest", group=named("readers"))
    assert (await peer.call("NotifyClientTermination", ending)).status.code == SdkCode.OK
    assert registry.consumers("readers") is None
    answer = await peer.call("Heartbeat", beat)
    assert answer.status.code == SdkCode.UNRECOGNIZED_CLIENT_TYPE
    assert number not in peer.trailers  # the stream itself is its client's to end


async def test_one_client_names_no_more_topics_than_allowed(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "NAMED_MAX", 1)
    await telemetry(peer, producer("plain"))
    number, head = peer.frames.begin("Telemetry")
    data = producer("plain", "late").SerializeToString()
    peer.writer.write(head + peer.frames.data(number, data, end=False))
    await peer.answers(number, "TelemetryCommand")
    assert peer.trailers[number]["grpc-status"] == "3"


async def test_of_too_many_clients_the_oldest_is_forgotten(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CLIENTS_MAX", 1)
    await telemetry(peer, producer("plain"))
    number, head = peer.frames.begin("Telemetry", HEADERS | {"x-mq-client-id": "other"})
    data = producer("late").SerializeToString()
    peer.writer.write(head + peer.frames.data(number, data, end=False))
    assert (await peer.message(number, "TelemetryCommand")).status.code == SdkCode.OK
    answer = await peer.call("Heartbeat", make("HeartbeatRequest", client_type=1))
    assert answer.status.code == SdkCode.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(
    ("invisible_ms", "code"),
    [(9_999, SdkCode.ILLEGAL_INVISIBLE_TIME), (12 * HOUR + 1, SdkCode.ILLEGAL_INVISIBLE_TIME)],
)
async def test_simple_consumers_say_for_how_long(
    peer: SdkPeer, invisible_ms: int, code: SdkCode
) -> None:
    assert plain_receives.HIDDEN_MS_MAX == 12 * HOUR
    assert await received(peer, asks(invisible_ms=invisible_ms)) == (code, [])


async def test_a_poll_needs_time(peer: SdkPeer) -> None:
    short = HEADERS | {"grpc-timeout": "3S"}
    code, _ = await received(peer, asks(), short)
    assert code == SdkCode.ILLEGAL_POLLING_TIME
    code, _ = await received(peer, asks(), short | {"x-mq-client-version": "5.0.2"})
    assert code == SdkCode.BAD_REQUEST


async def test_a_batch_has_a_largest_size(peer: SdkPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_receives, "BATCH_MAX", 2)
    await peer.call("SendMessage", sends(*[message(message_id=f"{n}") for n in range(3)]))
    counts = [len((await received(peer, asks(batch_size=1000)))[1]) for _ in range(2)]
    assert counts == [2, 1]


async def test_a_filter_that_is_none_is_refused(peer: SdkPeer) -> None:
    code, _ = await received(peer, asks(kind=2, expression="TAGS = "))
    assert code == SdkCode.INTERNAL_SERVER_ERROR
    code, _ = await received(peer, asks(expression="||"))
    assert code == SdkCode.ILLEGAL_FILTER_EXPRESSION


async def test_a_poll_that_is_taken_back_takes_nothing(peer: SdkPeer, broker: Broker) -> None:
    number = peer.start("ReceiveMessage", asks())
    await peer.call("QueryRoute", make("QueryRouteRequest", topic=named("plain")))
    peer.writer.write(frames.reset(number, frames.H2Error.CANCEL))
    await peer.call("SendMessage", sends(message()))
    _, got = await received(peer, asks())
    assert [one.system_properties.delivery_attempt for one in got] == [1]
    assert broker.rocketmq.lanes.pull.running == 0


async def test_receipts_count_until_they_are_over_or_replaced(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.call("SendMessage", sends(message()))
    _, (got,) = await received(peer, asks())
    change = make(
        "ChangeInvisibleDurationRequest",
        group=named("readers"),
        topic=named("plain"),
        receipt_handle=got.system_properties.receipt_handle,
        message_id="01AA",
        invisible_duration=duration(0),
    )
    changed = await peer.call("ChangeInvisibleDuration", change)
    assert changed.status.code == SdkCode.OK
    assert changed.receipt_handle != change.receipt_handle
    answer = await peer.call("ChangeInvisibleDuration", change)
    assert answer.status.code == SdkCode.INVALID_RECEIPT_HANDLE  # it was replaced
    _, (again,) = await received(peer, asks())
    assert again.system_properties.delivery_attempt == 2
    change.receipt_handle = changed.receipt_handle
    answer = await peer.call("ChangeInvisibleDuration", change)
    assert answer.status.code == SdkCode.INVALID_RECEIPT_HANDLE  # its time is over
    change.invisible_duration.CopyFrom(duration(12 * HOUR + 1))
    assert acknowledging.HIDDEN_MS_MAX == 12 * HOUR
    answer = await peer.call("ChangeInvisibleDuration", change)
    assert answer.status.code == SdkCode.ILLEGAL_INVISIBLE_TIME
    for told in ("", "nonsense", "0 1 2 3 4 5 6 7 8", again.system_properties.receipt_handle + "x"):
        again.system_properties.receipt_handle, kept = told, again.system_properties.receipt_handle
        ack = await acknowledged(peer, again)
        assert ack.entries[0].status.code in (
            SdkCode.INVALID_RECEIPT_HANDLE,
            SdkCode.BAD_REQUEST,
        )
        again.system_properties.receipt_handle = kept
    monkeypatch.setattr(receipts, "HANDLE_SIZE_MAX", 3)
    ack = await acknowledged(peer, again)
    assert ack.status.code == SdkCode.INVALID_RECEIPT_HANDLE
    monkeypatch.undo()
    assert (await acknowledged(peer, again)).status.code == SdkCode.OK


async def test_acknowledgements_of_one_request_have_a_largest_number(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledging, "ENTRIES_MAX", 1)
    await peer.call("SendMessage", sends(message(), message(message_id="02")))
    _, got = await received(peer, asks())
    assert (await acknowledged(peer, *got)).status.code == SdkCode.BAD_REQUEST
    assert (await acknowledged(peer, got[0])).status.code == SdkCode.OK
    assert (await acknowledged(peer)).status.code == SdkCode.INTERNAL_SERVER_ERROR


async def test_entries_that_differ_are_told_so(peer: SdkPeer) -> None:
    await peer.call("SendMessage", sends(message()))
    _, (got,) = await received(peer, asks())
    wrong = message()
    wrong.system_properties.receipt_handle = "wrong"
    ack = await acknowledged(peer, got, wrong)
    assert ack.status.code == SdkCode.MULTIPLE_RESULTS
    assert [entry.status.code for entry in ack.entries] == [
        SdkCode.OK,
        SdkCode.INVALID_RECEIPT_HANDLE,
    ]


async def test_messages_are_given_up_by_name(peer: SdkPeer) -> None:
    await peer.call("SendMessage", sends(message()))
    _, (got,) = await received(peer, asks())
    request = make(
        "ForwardMessageToDeadLetterQueueRequest",
        group=named("readers"),
        topic=named("plain"),
        receipt_handle=got.system_properties.receipt_handle,
        message_id="01AA",
        delivery_attempt=1,
        max_delivery_attempts=1,
    )
    answer = await peer.call("ForwardMessageToDeadLetterQueue", request)
    assert answer.status.code == SdkCode.OK
    _, (dead,) = await received(peer, asks("undertakers", "%DLQ%readers"))
    told = dead.system_properties
    assert (told.message_id, told.dead_letter_queue.topic) == ("01AA", "plain")
