"""A shard works with the others although its broker has no admin interface of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.model.access.users import User
from imago_broker.model.topics.sealing import DRAIN, seal_of
from imago_broker.service.access.access_edits import Actor
from imago_broker.shard_work import access_spreading
from imago_testing.clusters.shard_pair import eventually, make, put, running_pair, there
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_testing.clusters.shard_pair import Pair

BY = Actor("the tests", "nowhere")


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """The first has no admin interface, the second has one."""
    monkeypatch.setattr(access_spreading, "LOOK_SECONDS", 0.05)
    async with running_pair(tmp_path, without_admin={0}) as running:
        assert running.one.broker.ports.admin_port == 0
        yield running


async def test_users_reach_the_other_shard_and_come_from_it(pair: Pair) -> None:
    one, two = (admin.broker.core.access for admin in (pair.one, pair.two))
    one.put_user(User(name="ann", secret="password"), BY)
    two.put_user(User(name="bob", secret="password"), BY)
    await eventually(lambda: set(one.users) == set(two.users) == {"ann", "bob"})
    assert one.digest() == two.digest()


async def test_tools_of_rocketmq_change_users_on_all_shards(pair: Pair) -> None:
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    body = b'{"username": "ann", "password": "password", "userType": "Normal"}'
    answer = await peer.call(RequestCode.AUTH_CREATE_USER, {"username": "ann"}, body)
    await peer.close()
    assert answer.code == ResponseCode.SUCCESS
    assert set(pair.two.broker.core.access.users) == {"ann"}, "done once it is answered"


async def test_a_topic_that_a_send_makes_is_on_every_shard(pair: Pair) -> None:
    await put(pair.one, "fresh")
    await eventually(lambda: pair.two.broker.topics.get("fresh"))
    assert there(pair.two, "fresh") == there(pair.one, "fresh")


async def test_its_topics_leave_with_a_drain(pair: Pair) -> None:
    make(pair.one, "orders")
    view = pair.two.broker.coordinator.view
    await eventually(lambda: "orders" in view().topics)
    status, answer = await pair.two.call("POST", "/admin/v1/shards/0/drain", {})
    assert (status, answer["draining"]) == (200, True)
    await eventually(lambda: 0 in view().drained)
    assert there(pair.two, "orders").write_queues == 2
    seal = seal_of(there(pair.one, "orders"))
    assert seal is not None
    assert seal.cause == DRAIN


async def test_what_cannot_be_asked_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_spreading, "LOOK_SECONDS", 0.05)
    async with running_pair(tmp_path, without_admin={0, 1}) as pair:
        await put(pair.one, "fresh")
        await eventually(lambda: caplog.text.count("access_not_spread") == 2)
    said = [record.getMessage() for record in caplog.records]
    for shard in ("shard-0", "shard-1"):
        told = f"access_not_spread shard={shard} reason={access_spreading.NO_ADMIN}"
        assert said.count(told) == 1, "once, not at each look"
