"""Any shard's state through any broker: cordons, drains, what is left on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.model.topics.sealing import seal_of
from imago_broker.ports import CoordinatorError
from imago_testing.clusters.shard_pair import Pair, eventually, make, put, there

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin

SHARD_1 = "/admin/v1/shards/1"
CLOSED = ("TBW102", "imago_REPLY_TOPIC")
"""What every shard has, and one that is on record as drained takes nothing for."""


async def ok(admin: Admin, method: str, path: str, body: object = None) -> dict[str, object]:
    status, answer = await admin.call(method, path, body)
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


async def test_another_shard_is_cordoned_and_taken_back(pair: Pair) -> None:
    assert await ok(pair.one, "POST", f"{SHARD_1}/cordon") == {
        "cordoned": True,
        "shard": "shard-1",
    }
    shown = await pair.until(1, lambda shard: shard["cordoned"])
    assert not shown["draining"]
    await eventually(lambda: pair.two.broker.topics.intake.cordoned)
    await ok(pair.one, "POST", f"{SHARD_1}/uncordon", {"requestId": "r"})
    await pair.until(1, lambda shard: not shard["cordoned"])


def closed(admin: Admin) -> set[str]:
    return {config.name for config in admin.broker.topics.all() if seal_of(config)}


async def test_a_refused_record_leaves_open_what_every_shard_has(pair: Pair) -> None:
    make(pair.two, "orders", 1)
    await put(pair.two, "orders")
    await ok(pair.one, "POST", f"{SHARD_1}/cordon")
    await pair.until(1, lambda shard: shard["cordoned"])
    status, error = await pair.one.call("POST", f"{SHARD_1}/drained", {})
    assert (status, error["error"]) == (409, "not_drained")
    assert not closed(pair.two)


async def test_what_was_closed_for_a_record_that_fails_is_opened_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ok(pair.one, "POST", f"{SHARD_1}/cordon")
    await pair.until(1, lambda shard: shard["cordoned"])
    seen: list[set[str]] = []

    async def fail(*_: object, **__: object) -> None:
        seen.append(closed(pair.two))
        raise CoordinatorError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(pair.two.broker.coordinator.marks), "mark_shard", fail)
        status, _ = await pair.two.call("POST", "/admin/v1/shards/1/drained", {})
    assert (status, seen) == (503, [set(CLOSED)])
    await eventually(lambda: not closed(pair.two))
    await ok(pair.one, "POST", f"{SHARD_1}/drained")
    await eventually(lambda: closed(pair.two) == set(CLOSED))
    await ok(pair.one, "POST", f"{SHARD_1}/uncordon")
    await eventually(lambda: not closed(pair.two))


async def test_another_shard_is_drained_and_put_on_record(pair: Pair) -> None:
    make(pair.two, "orders", 3)
    await put(pair.two, "orders")
    left = await ok(pair.one, "GET", f"{SHARD_1}/remaining")
    assert (left["done"], left["openQueues"], left["messages"]) == (False, 3, 1)
    status, error = await pair.one.call("POST", f"{SHARD_1}/drained", {})
    assert (status, error["error"]) == (409, "not_cordoned")
    await ok(pair.one, "POST", f"{SHARD_1}/drain", {"requestId": "r"})
    await pair.until(1, lambda shard: shard["drain"] and not shard["drain"]["topicsToMove"])
    assert there(pair.one, "orders").write_queues == 3
    status, error = await pair.one.call("POST", f"{SHARD_1}/drained", {})
    assert (status, error["error"]) == (409, "not_drained")
    assert "unread messages: 1" in error["message"]
    pair.two.broker.offsets.commit("g", "orders", 0, 1)
    left = await ok(pair.one, "GET", f"{SHARD_1}/remaining")
    assert (left["done"], left["openQueues"], left["messages"]) == (True, 0, 0)
    assert await ok(pair.one, "POST", f"{SHARD_1}/drained") == {
        "drained": True,
        "shard": "shard-1",
        "brokerId": pair.two.broker.uuid,
        "epoch": left["epoch"],
    }
    await pair.until(1, lambda shard: shard["drained"])


async def test_a_shard_is_closed_without_its_topics_going_elsewhere(pair: Pair) -> None:
    make(pair.two, "orders", 3)
    answer = await ok(pair.one, "POST", f"{SHARD_1}/drain", {"move": False, "requestId": "r"})
    assert answer["move"] is False
    await pair.until(1, lambda shard: shard["drained"])
    assert seal_of(there(pair.two, "orders")) is not None
    assert pair.one.broker.topics.get("orders") is None
    status, error = await pair.one.call("POST", f"{SHARD_1}/drain", {"requestId": "s"})
    assert (status, error["error"]) == (409, "taken_back")
    assert "in another way" in error["message"]
    await ok(pair.one, "POST", f"{SHARD_1}/undrain")
    await eventually(lambda: there(pair.two, "orders").write_queues == 3)


async def test_the_only_shard_that_takes_topics_can_still_be_closed(pair: Pair) -> None:
    make(pair.two, "orders")
    await ok(pair.one, "POST", "/admin/v1/cordon")
    await eventually(lambda: 0 in pair.two.broker.coordinator.view().cordoned)
    status, error = await pair.one.call("POST", f"{SHARD_1}/drain", {})
    assert (status, error["error"]) == (409, "too_few_shards")
    await ok(pair.one, "POST", f"{SHARD_1}/drain", {"move": False})
    await pair.until(1, lambda shard: shard["drained"])


async def test_what_only_a_master_knows_is_not_guessed(pair: Pair) -> None:
    for method, path in (("GET", "remaining"), ("POST", "drained")):
        status, error = await pair.one.call(method, f"/admin/v1/shards/7/{path}")
        assert (status, error["error"]) == (404, "shard_not_found")
    await ok(pair.one, "POST", f"{SHARD_1}/cordon")
    await pair.two.broker.ports.admin.stop()
    status, error = await pair.one.call("POST", f"{SHARD_1}/drained")
    assert (status, error["error"]) == (502, "master_unreachable")
    assert not (await pair.shard(1))["drained"]


@pytest.mark.parametrize("mark", ["cordon", "uncordon", "drain", "undrain", "drained", "remove"])
async def test_an_operator_of_an_older_epoch_marks_nothing(pair: Pair, mark: str) -> None:
    before = await pair.shard(1)
    await ok(pair.one, "POST", "/admin/v1/operator-epoch", {"epoch": 5})
    old = {"Imago-Operator-Epoch": "4"}
    status, error = await pair.one.call("POST", f"{SHARD_1}/{mark}", {}, **old)
    assert (status, error["error"]) == (409, "stale_operator")
    assert await pair.shard(1) == before


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/admin/v1/shards/x/cordon", {}, 400),
        ("/admin/v1/shards/7/cordon", {}, 404),
        (f"{SHARD_1}/cordon", {"epoch": 1}, 400),
        (f"{SHARD_1}/drain", {"move": "no"}, 400),
        (f"{SHARD_1}/drained", {"force": True}, 400),
        ("/admin/v1/topics/orders/move", {"from": "x", "to": "any"}, 400),
        ("/admin/v1/topics/orders/move", {"from": 7, "to": "any"}, 404),
    ],
)
async def test_wrong_words_are_refused(
    pair: Pair, path: str, body: dict[str, object], status: int
) -> None:
    got, error = await pair.one.call("POST", path, body)
    assert got == status, error


async def test_a_topic_leaves_a_shard_through_any_broker(pair: Pair) -> None:
    make(pair.two, "orders", 3)
    path = "/admin/v1/topics/orders"
    await eventually(lambda: "orders" in pair.one.broker.coordinator.view().topics)
    answer = await ok(pair.one, "POST", f"{path}/spread", {"to": [0]})
    assert answer["shards"] == ["shard-0"]
    await eventually(lambda: 0 in pair.two.broker.coordinator.view().topics["orders"].shards)
    answer = await ok(pair.one, "POST", f"{path}/move", {"from": "shard-1", "to": "any"})
    assert (answer["from"], answer["to"]) == ("shard-1", []), "it is on the other one already"
    assert seal_of(there(pair.two, "orders")) is not None
    answer = await ok(pair.two, "POST", f"{path}/seal", {"from": 0})
    assert seal_of(there(pair.one, "orders")) is not None


async def test_a_topic_that_is_on_one_shard_only_gets_another_before_it_leaves(
    pair: Pair,
) -> None:
    make(pair.two, "orders", 3)
    answer = await ok(pair.one, "POST", "/admin/v1/topics/orders/move", {"from": 1, "to": "any"})
    assert answer["to"] == ["shard-0"]
    assert there(pair.one, "orders").write_queues == 3
    await ok(pair.one, "POST", f"{SHARD_1}/cordon")
    await eventually(lambda: 1 in pair.one.broker.coordinator.view().cordoned)
    status, error = await pair.one.call("POST", "/admin/v1/topics/orders/move", {"to": "any"})
    assert (status, error["error"]) == (409, "no_room")


async def test_shards_that_a_topic_has_left_do_not_count(pair: Pair) -> None:
    path = "/admin/v1/topics/orders"
    make(pair.two, "orders", 3)
    await eventually(lambda: "orders" in pair.one.broker.coordinator.view().topics)
    await ok(pair.one, "POST", f"{path}/seal", {"from": 1})
    await eventually(
        lambda: not pair.one.broker.coordinator.view().topics["orders"].shards[1].write
    )
    answer = await ok(pair.one, "PUT", path, {"shards": 1, "queues": 3})
    assert answer["shards"] == {"shard-0": "ok", "shard-1": "ok"}
    assert there(pair.one, "orders").write_queues == 3
    assert there(pair.two, "orders").write_queues == 0
