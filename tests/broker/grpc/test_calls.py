"""What producers and route queries of RocketMQ 5's SDKs are answered, and with which codes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import PERM_READ, PERM_WRITE, TopicConfig
from imago_broker.processors.grpc import checks, routes, sending
from imago_broker.service.puts import copies
from imago_testing.peers.sdk_calls import (
    asks,
    message,
    named,
    received,
    sends,
)
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import duration, make, timestamp

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.sdk_peer import SdkPeer


async def test_each_message_of_a_request_has_an_entry_of_its_own(peer: SdkPeer) -> None:
    made = [message(message_id=f"{number:02}", body=b"x") for number in range(3)]
    sent = await peer.call("SendMessage", sends(*made))
    assert [entry.message_id for entry in sent.entries] == ["00", "01", "02"]
    _, got = await received(peer, asks())
    assert {one.system_properties.message_id for one in got} == {"00", "01", "02"}


async def test_sends_without_a_client_are_refused(peer: SdkPeer) -> None:
    sent = await peer.call("SendMessage", sends(message()), {"x-mq-language": "GO"})
    assert sent.status.code == SdkCode.CLIENT_ID_REQUIRED


HOUR = 3600 * 1000
FAR = 25 * HOUR


def of_later(name: str, value: object) -> Any:
    """A message that says what later versions have."""
    made = message()
    setattr(made.system_properties, name, value)
    return made


CHECKED = (
    (sends(), SdkCode.MESSAGE_CORRUPTED),
    (sends(message("")), SdkCode.ILLEGAL_TOPIC),
    (sends(message("a b")), SdkCode.ILLEGAL_TOPIC),
    (sends(message("TBW102")), SdkCode.ILLEGAL_TOPIC),
    (sends(message(), message("late")), SdkCode.MESSAGE_CORRUPTED),
    (sends(message(body=b"")), SdkCode.MESSAGE_BODY_EMPTY),
    (sends(message(properties={"KEYS": "x"})), SdkCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (sends(message(properties={"a": "\x01"})), SdkCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (sends(message(tag=" ")), SdkCode.ILLEGAL_MESSAGE_TAG),
    (sends(message(tag="a|b")), SdkCode.ILLEGAL_MESSAGE_TAG),
    (sends(message(keys=[" "])), SdkCode.ILLEGAL_MESSAGE_KEY),
    (sends(message(message_id=" ")), SdkCode.ILLEGAL_MESSAGE_ID),
    (sends(message("ordered", message_group=" ")), SdkCode.ILLEGAL_MESSAGE_GROUP),
    (sends(message("ordered")), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (sends(message(message_group="g")), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (sends(message("unknown")), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (sends(message("half")), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (sends(of_later("priority", 3)), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (sends(of_later("lite_topic", "chat-1")), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (sends(of_later("lite_topic", "chat 1")), SdkCode.ILLEGAL_LITE_TOPIC),
    (sends(message("half", message_type=4)), SdkCode.OK),
    (sends(message("ordered", message_group="g" * 63)), SdkCode.OK),
    (sends(message("mixed", message_group="g")), SdkCode.OK),
    (sends(message("mixed")), SdkCode.OK),
)
"""Sends, and the code of the first thing that is wrong with them."""


async def test_sends_are_checked_with_the_originals_codes(peer: SdkPeer) -> None:
    for request, code in CHECKED:
        assert (await peer.call("SendMessage", request)).status.code == code, request


async def test_what_is_larger_than_the_limits_is_refused(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    monkeypatch.setattr(checks, "TOPIC_SIZE_MAX", 8)
    monkeypatch.setattr(checks, "PROPERTIES_MAX", 2)
    monkeypatch.setattr(checks, "USER_BYTES_MAX", 20)
    monkeypatch.setattr(checks, "MESSAGE_GROUP_BYTES_MAX", 4)
    monkeypatch.setattr(checks, "DELAY_MS_MAX", HOUR)
    monkeypatch.setattr(checks, "RECOVERY_MS_MAX", 1000)
    monkeypatch.setattr(sending, "SENDS_MAX", 2)
    now_ms = int(time.time() * 1000)
    for request, code in (
        (sends(message("t" * 8)), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (sends(message("t" * 9)), SdkCode.ILLEGAL_TOPIC),
        (sends(message(properties={"a": "1", "b": "2"})), SdkCode.OK),
        (
            sends(message(properties={"a": "1", "b": "2", "c": "3"})),
            SdkCode.MESSAGE_PROPERTIES_TOO_LARGE,
        ),
        (sends(message(tag="t" * 10, keys=["k" * 10])), SdkCode.OK),
        (sends(message(tag="t" * 10, keys=["k" * 11])), SdkCode.MESSAGE_PROPERTIES_TOO_LARGE),
        (sends(message("ordered", message_group="gggg")), SdkCode.OK),
        (sends(message("ordered", message_group="ggggg")), SdkCode.ILLEGAL_MESSAGE_GROUP),
        (sends(message("late", delivery_timestamp=timestamp(now_ms + HOUR // 2))), SdkCode.OK),
        (
            sends(message("late", delivery_timestamp=timestamp(now_ms + 2 * HOUR))),
            SdkCode.ILLEGAL_DELIVERY_TIME,
        ),
        (
            sends(
                message(
                    "half",
                    message_type=4,
                    orphaned_transaction_recovery_duration=duration(1001),
                )
            ),
            SdkCode.BAD_REQUEST,
        ),
        (sends(*[message()] * 2), SdkCode.OK),
        (sends(*[message()] * 3), SdkCode.MESSAGE_CORRUPTED),
    ):
        answer = await peer.call("SendMessage", request)
        assert answer.status.code == code, request
    largest = broker.config.rocketmq.message_bytes_max
    assert (await peer.call("SendMessage", sends(message(body=b"x" * largest)))).entries
    answer = await peer.call("SendMessage", sends(message(body=b"x" * (largest + 1))))
    assert answer.status.code == SdkCode.MESSAGE_BODY_TOO_LARGE


async def test_messages_of_a_group_share_the_queue_that_the_hash_names(peer: SdkPeer) -> None:
    for group in ("g0", "g1", "g2"):
        for _ in range(2):
            answer = await peer.call(
                "SendMessage", sends(message("ordered", message_group=group, message_id=group))
            )
            assert answer.status.code == SdkCode.OK
    _, got = await received(peer, asks(topic="ordered"))
    queues = {(one.system_properties.message_group, one.system_properties.queue_id) for one in got}
    assert len(got) == 6
    assert len(queues) == 3


async def test_routes_tell_queues_types_and_where_to_go(peer: SdkPeer, broker: Broker) -> None:
    request = make("QueryRouteRequest", topic=named("mixed"))
    answer = await peer.call("QueryRoute", request)
    assert [queue.id for queue in answer.message_queues] == [0, 1]
    queue = answer.message_queues[0]
    assert list(queue.accept_message_types) == [1, 2, 3, 4]
    assert (queue.permission, queue.broker.name, queue.broker.id) == (4, "shard-0", 0)
    (address,) = queue.broker.endpoints.addresses
    assert (address.host, address.port) == ("127.0.0.1", broker.ports.grpc_port)
    assert queue.broker.endpoints.scheme == 1
    unknown = await peer.call("QueryRoute", make("QueryRouteRequest", topic=named("nothing")))
    assert unknown.status.code == SdkCode.TOPIC_NOT_FOUND
    assert broker.topics.get("nothing") is None


async def test_a_route_has_a_largest_size(peer: SdkPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "QUEUES_MAX", 1)
    answer = await peer.call("QueryRoute", make("QueryRouteRequest", topic=named("plain")))
    assert len(answer.message_queues) == 1


@pytest.mark.parametrize(
    ("queues", "told"),
    [
        ([4096, 4096], [50, 50]),
        ([4096, 10, 4096], [45, 10, 45]),
        ([10, 20], [10, 20]),
        ([0, 100], [1, 99]),
        ([200], [100]),
        ([50] * 3, [33, 33, 34]),
    ],
)
def test_no_shard_is_left_out_of_a_route(
    monkeypatch: pytest.MonkeyPatch, queues: list[int], told: list[int]
) -> None:
    monkeypatch.setattr(routes, "QUEUES_MAX", 100)
    here = routes.Here("shard", "h", 1)
    assert routes._shares([routes._Place(here, n, n, 6) for n in queues]) == told


async def test_all_of_a_group_get_the_same_assignment(peer: SdkPeer, broker: Broker) -> None:
    request = make("QueryAssignmentRequest", topic=named("plain"), group=named("readers"))
    answer = await peer.call("QueryAssignment", request)
    assert [each.message_queue.id for each in answer.assignments] == [-1]
    broker.groups.update(GroupConfig(name="in-order", consume_message_orderly=True))
    request.group.name = "in-order"
    answer = await peer.call("QueryAssignment", request)
    assert [each.message_queue.id for each in answer.assignments] == [0, 1]
    request.topic.name = "nothing"
    answer = await peer.call("QueryAssignment", request)
    assert answer.status.code == SdkCode.TOPIC_NOT_FOUND


async def test_transactions_end_as_their_producer_says(peer: SdkPeer) -> None:
    for resolution, expected in ((1, 1), (2, 0)):
        sent = await peer.call(
            "SendMessage", sends(message("half", message_type=4, message_id=f"0{resolution}"))
        )
        request = make(
            "EndTransactionRequest",
            topic=named("half"),
            message_id=sent.entries[0].message_id,
            transaction_id=sent.entries[0].transaction_id,
            resolution=resolution,
            source=1,
        )
        assert (await peer.call("EndTransaction", request)).status.code == SdkCode.OK
        _, got = await received(peer, asks(topic="half", batch_size=1))
        assert len(got) == expected
    request = make("EndTransactionRequest", topic=named("half"), resolution=1, source=1)
    request.transaction_id = "unknown"
    answer = await peer.call("EndTransaction", request)
    assert answer.status.code == SdkCode.INTERNAL_SERVER_ERROR
    request.transaction_id = " "
    answer = await peer.call("EndTransaction", request)
    assert answer.status.code == SdkCode.INVALID_TRANSACTION_ID


async def test_nobodys_half_messages_of_the_same_id_are_in_the_way(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where more have it than are looked at: the id of a transaction says its place."""
    monkeypatch.setattr(copies, "COPIES_LOOKED_MAX", 4)
    monkeypatch.setattr(copies, "COPIES_AT_ONCE", 2)
    half = message("half", message_type=4, message_id="0X")
    sent = await peer.call("SendMessage", sends(half))
    other = message("mixed", message_type=4, message_id="0X")
    for _ in range(3):
        assert (await peer.call("SendMessage", sends(other))).status.code == SdkCode.OK
    request = make("EndTransactionRequest", topic=named("half"), resolution=1, source=1)
    request.transaction_id = "0X"  # as a client has it that began before an upgrade
    assert (await peer.call("EndTransaction", request)).status.code == SdkCode.OK
    again = await peer.call("SendMessage", sends(half))
    for _ in range(6):
        assert (await peer.call("SendMessage", sends(other))).status.code == SdkCode.OK
    answer = await peer.call("EndTransaction", request)
    assert answer.status.code == SdkCode.INTERNAL_SERVER_ERROR
    assert "too many half messages have the id 0X" in answer.status.message
    for one in (again, sent):
        request.transaction_id = one.entries[0].transaction_id
        assert (await peer.call("EndTransaction", request)).status.code == SdkCode.OK
    _, got = await received(peer, asks(topic="half"))
    assert len(got) == 2
    request.topic.name = "mixed"
    for told in (request.transaction_id, "0X@1", "0X@99999999999999999999", "0X@-1", "@5"):
        request.transaction_id = told  # of another topic, or of no place
        answer = await peer.call("EndTransaction", request)
        assert answer.status.code in (SdkCode.OK, SdkCode.INTERNAL_SERVER_ERROR)
    _, got = await received(peer, asks(topic="half", invisible_ms=10_000))
    assert not got


async def test_of_a_half_message_sent_again_the_newest_is_meant(peer: SdkPeer) -> None:
    half = message("half", message_type=4, message_id="0X")
    for _ in range(2):
        await peer.call("SendMessage", sends(half))
    request = make(
        "EndTransactionRequest", topic=named("half"), transaction_id="0X", resolution=1, source=1
    )
    for _ in range(2):  # the second time it is a repeat
        assert (await peer.call("EndTransaction", request)).status.code == SdkCode.OK
    _, got = await received(peer, asks(topic="half"))
    assert len(got) == 1


async def test_unknown_methods_are_not_implemented(peer: SdkPeer) -> None:
    number = peer.start("PullMessage", make("ReceiveMessageRequest"))
    await peer.answers(number, "ReceiveMessageResponse")
    assert peer.trailers[number]["grpc-status"] == "12"


async def test_a_mistake_costs_one_call(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection and its other calls go on; the log says what went wrong."""
    request = make("QueryRouteRequest", topic=named("plain"))
    with monkeypatch.context() as planted:
        planted.setattr(routes, "_types", lambda _: 1 // 0)
        number = peer.start("QueryRoute", request)
        assert await peer.answers(number, "QueryRouteResponse") == []
    assert peer.trailers[number]["grpc-status"] == "13"
    assert peer.trailers[number]["grpc-message"] == "internal error, see the broker's log"
    (logged,) = (record for record in caplog.records if record.exc_info)
    assert "call_failed method=QueryRoute" in logged.getMessage()
    assert logged.exc_info is not None
    assert logged.exc_info[0] is ZeroDivisionError
    assert (await peer.call("QueryRoute", request)).status.code == SdkCode.OK


async def test_queues_that_nobody_may_use_are_told(broker: Broker, peer: SdkPeer) -> None:
    for name, perm in (("unread", PERM_WRITE), ("unwritten", PERM_READ)):
        config = TopicConfig(name=name, read_queues=1, write_queues=1, perm=perm)
        broker.topics.create_or_update(config)
    assert (await received(peer, asks(topic="unread")))[0] == SdkCode.FORBIDDEN
    wanted = make("QueryAssignmentRequest", topic=named("unread"), group=named("readers"))
    told = await peer.call("QueryAssignment", wanted)
    assert told.status.code == SdkCode.FORBIDDEN
    told = await peer.call("SendMessage", sends(message("unwritten")))
    assert told.status.code == SdkCode.FORBIDDEN
