"""What another shard refuses is refused in its words, with its status: it is no fault of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.admin.errors import AdminError
from imago_broker.admin.shards.shards import _of_all
from imago_log.errors import DiskFullError
from imago_testing.clusters.shard_pair import eventually, make

if TYPE_CHECKING:
    import pytest

    from imago_testing.clusters.shard_pair import Pair

BOTH = {"dialects": "metaq,rocketmq"}


async def _far(pair: Pair) -> None:
    """Have a topic on the other shard alone."""
    make(pair.two, "far", 2, attributes={"dialects": "rocketmq"})
    await eventually(lambda: "far" in pair.one.broker.coordinator.view().topics)


async def test_a_setting_that_only_another_shard_can_refuse_is_the_callers_mistake(
    pair: Pair,
) -> None:
    await _far(pair)
    _, own = await pair.two.call("PUT", "/admin/v1/topics/far", BOTH)
    status, told = await pair.one.call("PUT", "/admin/v1/topics/far", BOTH)
    assert (status, told["error"], told["cure"]) == (400, "bad_request", own["cure"])
    assert told["message"] == f"Not done: shard-1: {own['message']}"
    status, told = await pair.one.call(
        "PUT", "/admin/v1/topics/far", BOTH | {"shards": ["shard-0", "shard-1"]}
    )
    assert (status, told["error"], told["cure"]) == (400, "bad_request", own["cure"])
    said = f"Done on shard-0, but not on every shard: shard-1: {own['message']}"
    assert told["message"] == said


async def test_a_place_that_only_another_shard_can_refuse_is_the_callers_mistake(
    pair: Pair,
) -> None:
    await _far(pair)
    body = {"topic": "far", "to": "nowhere", "create": True}
    own_status, own = await pair.two.call("POST", "/admin/v1/groups/g/reset", body)
    status, told = await pair.one.call("POST", "/admin/v1/groups/g/reset", body)
    assert (status, told["error"], told["cure"]) == (own_status, own["error"], own["cure"])
    assert (status, told["message"]) == (400, f"Not done: shard-1: {own['message']}")


async def test_a_full_disk_of_another_shard_is_told_as_its_own_would_be(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskFullError(used_ratio=0.99, limit_ratio=0.9)

    monkeypatch.setattr(pair.two.broker.topics, "create_or_update", full)
    own_status, own = await pair.two.call("PUT", "/admin/v1/topics/o", {"queues": 1})
    status, told = await pair.one.call("PUT", "/admin/v1/topics/o", {"queues": 1})
    assert (status, told["error"], told["cure"]) == (own_status, own["error"], own["cure"])
    assert (status, told["error"]) == (503, "disk_full")
    assert told["message"].startswith("Done on shard-0, but not on every shard: shard-1: The disk")


async def test_a_move_that_another_shard_refuses_says_why(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskFullError(used_ratio=0.99, limit_ratio=0.9)

    make(pair.one, "near")
    monkeypatch.setattr(pair.two.broker.topics, "create_or_update", full)
    body = {"from": 0, "to": [1]}
    status, told = await pair.one.call("POST", "/admin/v1/topics/near/move", body)
    assert (status, told["error"]) == (503, "disk_full")
    assert told["message"].startswith("shard-1: The disk of this broker is full")


def test_what_may_come_later_is_told_before_what_never_will() -> None:
    never = AdminError(400, "bad_request", "Queues: 0.", "Correct it.")
    later = AdminError(503, "disk_full", "It is full.", "Give it room.")
    told = _of_all({"shard-1": never, "shard-2": later}, [])
    assert (told.status, told.code, told.cure) == (503, "disk_full", "Give it room.")
    assert told.message == "Not done: shard-1: Queues: 0; shard-2: It is full."
