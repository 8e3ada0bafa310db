"""Messages that people send, and give back to groups, over the admin interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.current import sending
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.puts.copies import read_copy

if TYPE_CHECKING:
    from imago_broker.service.puts.copies import StoredCopy
    from imago_testing.peers.admin import Admin

SEND = "/admin/v1/messages?topic=orders"
REPLAY = "/admin/v1/groups/billing/replay"
DLQ, RETRY = "%DLQ%billing", "%RETRY%billing"


def make(admin: Admin, name: str) -> None:
    config = TopicConfig(name=name, read_queues=1, write_queues=1)
    admin.broker.topics.create_or_update(config)


def stored(admin: Admin, topic: str, offset: int = 0) -> StoredCopy:
    taken = admin.broker.store.read(topic, 0, offset, messages_max=1, bytes_max=1)
    return read_copy(bytes(taken.body))


def first_of(admin: Admin, topic: str) -> tuple[int, int]:
    return admin.broker.store.queue_range(topic, 0)


async def test_a_message_is_stored_as_it_was_given(admin: Admin) -> None:
    make(admin, "orders")
    body = {"body": "hé", "tags": "late", "keys": ["k1", "k2"], "properties": {"from": "web"}}
    status, answer = await admin.call("POST", SEND, body)
    assert (status, answer["queue"], answer["offset"]) == (201, 0, 0)
    status, found = await admin.call("GET", f"/admin/v1/messages?id={answer['uniqueId']}")
    (item,) = found["items"]
    assert (item["text"], item["tags"], item["keys"]) == ("hé", "late", "k1 k2")
    assert item["properties"]["from"] == "web"
    status, _ = await admin.call("POST", SEND, {"bodyBase64": "/wA="})
    assert (status, stored(admin, "orders", 1).body) == (201, b"\xff\x00")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"body": "x", "bodyBase64": "eA=="},
        {"bodyBase64": "?"},
        {"bodyBase64": "é"},
        {"body": 5},
        {"body": "x", "keys": "k"},
        {"body": "x", "keys": ["a b"]},
        {"body": "x", "properties": {"a": 1}},
        {"body": "x", "properties": {"KEYS": "k"}},
        {"body": "x", "properties": {"a": "\x01"}},
        {"body": "x", "properties": {"a": "b" * 40_000}},
        {"body": "x", "queue": 1},
    ],
)
async def test_what_is_no_message_is_refused(admin: Admin, body: dict[str, Any]) -> None:
    make(admin, "orders")
    status, answer = await admin.call("POST", SEND, body)
    assert status == 400, answer
    assert first_of(admin, "orders") == (0, 0)


async def test_topics_that_take_nothing_are_refused(admin: Admin) -> None:
    status, answer = await admin.call("POST", "/admin/v1/messages?topic=nothing", {"body": "x"})
    assert (status, answer["error"]) == (404, "topic_not_found")
    config = TopicConfig(name="orders", read_queues=1, write_queues=1, perm=4)
    admin.broker.topics.create_or_update(config)
    status, answer = await admin.call("POST", SEND, {"body": "x"})
    assert (status, answer["error"]) == (409, "refused"), answer


async def give_up(admin: Admin, number: int) -> None:
    make(admin, DLQ)
    for each in range(number):
        message = {"body": f"letter {each}", "properties": {"n": str(each)}}
        status, _ = await admin.call("POST", "/admin/v1/messages?topic=%25DLQ%25billing", message)
        assert status == 201


async def test_what_was_given_up_goes_back_once(admin: Admin) -> None:
    await give_up(admin, 5)
    status, answer = await admin.call("POST", REPLAY)
    assert (status, answer["error"]) == (409, "nobody_takes_back")
    make(admin, RETRY)
    admin.broker.offsets.commit("billing", RETRY, 0, 0)
    status, answer = await admin.call("POST", f"{REPLAY}?dry=yes")
    assert status == 400, "or it would be sent, where somebody only wants to count"
    status, answer = await admin.call("POST", f"{REPLAY}?dry=true")
    assert [(item["sent"], item["left"]) for item in answer["items"]] == [(0, 5)]
    for asked, told, end in ((2, (2, 3), 2), (100, (3, 0), 5), (100, (0, 0), 5)):
        status, answer = await admin.call("POST", f"{REPLAY}?limit={asked}")
        assert status == 200, answer
        assert [(item["sent"], item["left"]) for item in answer["items"]] == [told]
        assert first_of(admin, RETRY) == (0, end)
    again = stored(admin, RETRY, 3)
    assert (again.body, again.text(b"n"), again.reconsume_times) == (b"letter 3", "3", 0)
    assert again.text(b"ORIGIN_MESSAGE_ID") == stored(admin, DLQ, 3).offset_message_id


async def test_two_replays_at_once_do_not_both_send(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await give_up(admin, 2)
    make(admin, RETRY)
    admin.broker.offsets.commit("billing", RETRY, 0, 0)
    locks, name = admin.broker.rocketmq.clients.locks, admin.broker.config.broker_name
    now_ms = admin.broker.clock.monotonic_ms()
    key = (name, DLQ, 0)
    assert locks.lock(sending.READER, "a command", [key], now_ms=now_ms) == [key]
    status, answer = await admin.call("POST", REPLAY)
    assert (status, answer["error"]) == (409, "replayed_already")
    locks.unlock(sending.READER, "a command", [key])
    monkeypatch.setattr(sending, "LETTERS_MAX", 1)
    status, _ = await admin.call("POST", f"{REPLAY}?limit=2")
    assert status == 400
    status, answer = await admin.call("POST", f"{REPLAY}?limit=1")
    assert (answer["items"][0]["sent"], first_of(admin, RETRY)) == (1, (0, 1))
    assert locks.lock(sending.READER, "a command", [key], now_ms=now_ms) == [key]
