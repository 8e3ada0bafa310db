"""A shard that has no master lacks a change: no call says done, and what was done is named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from imago_broker.admin.shards import shards
from imago_broker.app.registration import Registration
from imago_broker.model.groups import GroupConfig
from imago_testing.clusters.shard_pair import Pair, eventually, make

if TYPE_CHECKING:
    import pytest

HALF = "Done on shard-0, but not on every shard"
REFUSED = {
    ("PUT", "/admin/v1/topics/new"): {"queues": 2},
    ("PUT", "/admin/v1/topics/other"): {"shards": [0, 1]},
    ("PUT", "/admin/v1/topics/orders"): {"queues": 1},
    ("POST", "/admin/v1/topics/here/spread"): {},
    ("POST", "/admin/v1/groups/afar/reset"): {"topic": "orders", "to": "earliest"},
}
"""What is refused before any shard is changed."""
CHANGES: dict[tuple[str, str], dict[str, Any] | None] = {
    ("PUT", "/admin/v1/topics/orders"): {"queues": 8},
    ("PUT", "/admin/v1/groups/g"): {"retry_max_times": 3},
    ("POST", "/admin/v1/groups/g/reset"): {"topic": "orders", "to": "earliest"},
    ("DELETE", "/admin/v1/groups/g"): None,
    ("DELETE", "/admin/v1/topics/orders"): None,
    ("PUT", "/admin/v1/users/ann"): {"password": "password"},
    ("PUT", "/admin/v1/quotas/topic:here"): {"quotas": {"producerRequestsPerSecond": 7}},
    ("PUT", "/admin/v1/access"): {"whiteAddresses": []},
    ("DELETE", "/admin/v1/quotas/topic:here"): None,
    ("DELETE", "/admin/v1/users/ann"): None,
}


async def without_the_second(pair: Pair) -> None:
    """Have orders on both shards, here on the first alone, a group on each; stop the second."""
    for admin in (pair.one, pair.two):
        make(admin, "orders")
    make(pair.one, "here")
    pair.one.broker.groups.update(GroupConfig(name="g"))
    pair.two.broker.groups.update(GroupConfig(name="afar"))
    coordinator = pair.one.broker.coordinator

    def placed() -> bool:
        topics = coordinator.view().topics
        return "here" in topics and len(topics["orders"].shards) == 2

    await eventually(placed)
    await pair.two.broker.stop()
    await eventually(lambda: coordinator.view().away() == (1,))


async def test_a_change_that_a_shard_without_master_lacks_is_not_done(pair: Pair) -> None:
    await without_the_second(pair)
    for (method, path), body in REFUSED.items():
        status, answer = await pair.one.call(method, path, body)
        assert (status, answer.get("error")) == (503, "no_master"), (path, answer)
        assert "shard-1 has no master" in answer["message"]
    orders = pair.one.broker.topics.get("orders")
    assert orders is not None
    assert orders.write_queues == 2
    for (method, path), body in CHANGES.items():
        status, answer = await pair.one.call(method, path, body)
        assert (status, answer.get("error")) == (502, "shard_failed"), (method, path, answer)
        assert "shard-1: it has no master now" in answer["message"]
        assert answer["message"].startswith((HALF, "Done here, but not on every shard yet"))
    for path in (
        "topics/orders",
        "groups/g",
        "users/ann",
        "users/ann/tokens/1",
        "quotas/topic:here",
    ):
        status, answer = await pair.one.call("DELETE", f"/admin/v1/{path}")
        assert (status, answer["error"]) == (502, "shard_failed"), "the other shard has it still"


async def test_nothing_is_concluded_from_a_master_that_does_not_answer(pair: Pair) -> None:
    """It may have died a moment ago: it may hold messages, know a group, have members of it."""
    for admin in (pair.one, pair.two):
        make(admin, "orders")
    pair.one.broker.groups.update(GroupConfig(name="g"))
    pair.two.broker.groups.update(GroupConfig(name="afar"))
    view = pair.one.broker.coordinator.view
    await eventually(lambda: "orders" in view().topics and len(view().topics["orders"].shards) == 2)
    await pair.two.broker.ports.admin.stop()
    for method, path, body in (
        ("PUT", "/admin/v1/topics/orders", {"queues": 1}),
        ("POST", "/admin/v1/groups/afar/reset", {"topic": "orders", "to": "earliest"}),
        ("DELETE", "/admin/v1/groups/g", None),
    ):
        status, answer = await pair.one.call(method, path, body)
        assert (status, answer["error"]) == (502, "shard_failed"), (path, answer)
        assert answer["message"].startswith("Not done: shard-1: "), answer
    orders = pair.one.broker.topics.get("orders")
    assert orders is not None
    assert orders.read_queues == 2
    assert pair.one.broker.groups.get("g") is not None


async def test_what_a_shard_without_master_never_had_is_changed_and_deleted(pair: Pair) -> None:
    await without_the_second(pair)
    ok = {"shard-0": "ok"}
    for method, path, body in (
        ("PUT", "/admin/v1/topics/here", {"queues": 3}),
        ("PUT", "/admin/v1/topics/new", {"shards": [0]}),
        ("POST", "/admin/v1/groups/g/reset", {"topic": "here", "to": "earliest"}),
        ("DELETE", "/admin/v1/topics/here", None),
    ):
        status, answer = await pair.one.call(method, path, body)
        assert (status // 100, answer.get("shards")) == (2, ok), (path, answer)


async def test_a_topic_is_made_once_the_registry_shows_it_on_all_its_shards(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call looks there for the shards that it concerns."""
    may_go, publish = asyncio.Event(), Registration._publish

    async def late(registration: Registration, *arguments: Any) -> None:
        if registration._shard == 1:
            await may_go.wait()
        await publish(registration, *arguments)

    monkeypatch.setattr(Registration, "_publish", late)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "PLACED_SECONDS_MAX", 0.2)
        status, answer = await pair.one.call("PUT", "/admin/v1/topics/orders", {"queues": 1})
    assert (status, answer["error"]) == (503, "not_settled"), answer
    assert "the registry does not show the topic on shard-1" in answer["message"]
    made = asyncio.create_task(pair.one.call("PUT", "/admin/v1/topics/orders", {"shards": [0, 1]}))
    may_go.set()
    status, answer = await made
    assert (status, answer["shards"]) == (200, {"shard-0": "ok", "shard-1": "ok"})
    assert sorted(pair.one.broker.coordinator.view().topics["orders"].shards) == [0, 1]
    body = {"topic": "orders", "to": "earliest", "create": True}
    status, answer = await pair.one.call("POST", "/admin/v1/groups/g/reset", body)
    assert answer["shards"] == {"shard-0": "ok", "shard-1": "ok"}
