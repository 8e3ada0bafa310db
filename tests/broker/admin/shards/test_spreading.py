"""A topic that a send makes: on every shard that producers may have chosen a queue of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.admin.errors import AdminError
from imago_broker.model.names import DEFAULT_TOPIC
from imago_broker.shard_work import spreading
from imago_broker.shard_work.opening import open_on
from imago_client import Client, Message, MessageQueue
from imago_testing.clusters.shard_pair import eventually, put, there
from imago_testing.peers.metaq import metaq_peer, put_place

if TYPE_CHECKING:
    import pytest

    from imago_testing.clusters.shard_pair import Pair


async def test_it_is_on_every_shard_with_equal_settings(pair: Pair) -> None:
    await put(pair.one, "fresh")
    await eventually(lambda: pair.two.broker.topics.get("fresh"))
    assert there(pair.two, "fresh") == there(pair.one, "fresh")
    view = pair.one.broker.coordinator.view
    await eventually(lambda: "fresh" in view().topics)
    await eventually(lambda: set(view().topics["fresh"].shards) == {0, 1})


async def test_sends_that_are_pinned_to_queues_of_the_templates_route_all_arrive(
    pair: Pair,
) -> None:
    name_service = f"127.0.0.1:{pair.one.broker.ports.namesrv_port}"
    for shard in ("shard-1", "shard-0", "shard-1"):
        # Another client each time: the later ones find the topic's own route.
        async with Client(name_service) as client:
            queue = MessageQueue("fresh", shard, 3)
            sent = await client.producer().send(Message("fresh", b"x"), queue=queue)
            assert sent.queue == queue
    ends = [admin.broker.store.queue_range("fresh", 3) for admin in (pair.one, pair.two)]
    assert ends == [(0, 1), (0, 2)]


async def test_a_shard_that_is_cordoned_does_not_get_it(pair: Pair) -> None:
    assert (await pair.two.call("POST", "/admin/v1/cordon", {}))[0] == 200
    await eventually(lambda: 1 in pair.one.broker.coordinator.view().cordoned)
    await put(pair.one, "fresh")
    await put(pair.one, "fresh2")
    assert (await pair.two.call("POST", "/admin/v1/uncordon", {}))[0] == 200
    view = pair.one.broker.coordinator.view
    await eventually(lambda: 1 not in view().cordoned)
    await eventually(lambda: 1 in view().topics[DEFAULT_TOPIC].shards)
    await put(pair.one, "fresh3")
    await eventually(lambda: pair.two.broker.topics.get("fresh3"))
    assert pair.two.broker.topics.get("fresh") is None
    assert pair.two.broker.topics.get("fresh2") is None


async def test_groups_own_topics_and_puts_of_metaq_make_theirs_here_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = pair.one.broker
    assert broker.metaq is not None
    by_itself = replace(broker.config.metaq, auto_create_topic=True)
    monkeypatch.setattr(broker.metaq.settings, "current", by_itself)
    async with metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("by-metaq", 0, b"x"))
    await put(pair.one, "%RETRY%group")
    await put(pair.one, "fresh")
    await eventually(lambda: pair.two.broker.topics.get("fresh"))
    assert pair.two.broker.topics.get("by-metaq") is None
    assert pair.two.broker.topics.get("%RETRY%group") is None


async def test_a_shard_that_does_not_answer_is_asked_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreading, "TRY_AGAIN_SECONDS", 0.01)
    failed: list[int] = []

    async def sometimes(*arguments: object, **named: object) -> None:
        if len(failed) < 3:
            failed.append(1)
            raise AdminError(503, "no_master", "no master", "again")
        await open_on(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(spreading, "open_on", sometimes)
    await put(pair.one, "fresh")
    await eventually(lambda: pair.two.broker.topics.get("fresh"))
    assert len(failed) == 3
