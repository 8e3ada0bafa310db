"""The operator's client of brokers against two real brokers in this process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from imago_operator.broker_rules.keys import KEYS
from imago_operator.brokers.admin import AdminClient
from imago_operator.brokers.http import BrokerHttp, SilentError, StaleOperatorError
from imago_operator.brokers.reach import BrokerFinder
from imago_operator.errors import BlockedError, InvalidError, RetryError
from imago_operator.model.state import RemainingContent
from imago_testing.clusters.shard_pair import Pair, running_pair
from imago_testing.kubernetes.fake_kube_port import FakeKubePort
from imago_testing.peers.admin import TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOWHERE = "http://127.0.0.1:9"


class Asked:
    """Two brokers of two shards, and what asks them."""

    def __init__(self, pair: Pair, http: BrokerHttp) -> None:
        self.pair, self.http = pair, http
        self.admin = AdminClient(http.with_token(TOKEN))
        ports = (admin.broker.ports.admin_port for admin in (pair.one, pair.two))
        self.brokers = [f"http://127.0.0.1:{port}" for port in ports]

    @property
    def one(self) -> str:
        return self.brokers[0]


@pytest.fixture(name="asked")
async def _asked(tmp_path: Path) -> AsyncIterator[Asked]:
    ids = iter(range(1000))
    async with running_pair(tmp_path) as pair, BrokerHttp(lambda: f"id-{next(ids)}") as http:
        yield Asked(pair, http)


async def test_the_registry_is_seen_through_any_broker(asked: Asked) -> None:
    for brokers in (asked.brokers, asked.brokers[::-1], [NOWHERE, *asked.brokers]):
        found = await asked.admin.registry(brokers)
        assert found is not None
        assert found.connected
        assert found.cluster_id
        assert sorted(found.shards) == [0, 1]
        for shard in found.shards.values():
            assert shard.master in {member.uuid for member in shard.members}
            assert (shard.cordoned, shard.drained) == (False, False)
    assert await asked.admin.registry([NOWHERE]) is None
    assert await asked.admin.registry([]) is None


async def test_a_broker_says_who_it_is_and_how_it_is_set(asked: Asked) -> None:
    found = await asked.admin.probe(asked.one)
    registry = await asked.admin.registry(asked.brokers)
    assert found is not None
    assert registry is not None
    assert (found.shard, found.role, found.settled) == (0, "master", True)
    assert found.uuid == registry.shards[0].master
    assert found.caught_up
    assert found.restart is not None
    assert "singleReplica" in found.restart.risks
    assert set(found.config) == {name for name, key in KEYS.items() if key.dynamic}
    assert await asked.admin.probe(NOWHERE) is None


async def test_settings_are_changed_under_the_epoch_and_read_back(asked: Asked) -> None:
    epoch = await asked.admin.raise_epoch(asked.brokers)
    values = {"metaq.auto_create_topic": True, "metaq.topic_patterns": ["a.*"]}
    await asked.admin.set_config(asked.one, values, operator_epoch=epoch)
    found = await asked.admin.probe(asked.one)
    assert found is not None
    assert found.config["metaq.auto_create_topic"] is True
    assert found.config["metaq.topic_patterns"] == ("a.*",)
    with pytest.raises(BlockedError, match=r"metaq\.port"):
        await asked.admin.set_config(asked.one, {"metaq.port": 1}, operator_epoch=epoch)
    bad = {"metaq.auto_create_topic": "perhaps"}
    with pytest.raises(InvalidError):
        await asked.admin.set_config(asked.one, bad, operator_epoch=epoch)


async def test_an_operator_that_was_replaced_is_refused(asked: Asked) -> None:
    old = await asked.admin.raise_epoch(asked.brokers)
    new = await asked.admin.raise_epoch(asked.brokers)
    assert new > old
    registry = await asked.admin.registry(asked.brokers)
    assert registry is not None
    assert registry.operator_epoch == new
    with pytest.raises(StaleOperatorError):
        await asked.admin.cordon(asked.brokers, 1, operator_epoch=old)
    await asked.admin.cordon(asked.brokers, 1, operator_epoch=new)


async def test_a_shard_is_closed_read_out_and_taken_back(asked: Asked) -> None:
    epoch = await asked.admin.raise_epoch(asked.brokers)
    with pytest.raises(BlockedError):
        await asked.admin.mark_drained(asked.brokers, 1, operator_epoch=epoch)
    await asked.admin.cordon(asked.brokers, 1, operator_epoch=epoch)
    left = await asked.admin.remaining(asked.brokers, 1)
    assert left is not None
    assert left.nothing
    assert await asked.admin.remaining([NOWHERE], 1) is None
    await asked.admin.mark_drained(asked.brokers, 1, operator_epoch=epoch)
    registry = await asked.admin.registry(asked.brokers)
    assert registry is not None
    assert (registry.shards[1].cordoned, registry.shards[1].drained) == (True, True)
    await asked.admin.uncordon(asked.brokers, 1, operator_epoch=epoch)
    registry = await asked.admin.registry(asked.brokers)
    assert registry is not None
    assert (registry.shards[1].cordoned, registry.shards[1].drained) == (False, False)


async def test_only_the_broker_that_is_meant_gives_leadership_away(asked: Asked) -> None:
    epoch = await asked.admin.raise_epoch(asked.brokers)
    registry = await asked.admin.registry(asked.brokers)
    assert registry is not None
    shard = registry.shards[0]
    assert shard.master is not None
    epochs = (await asked.pair.one.call("GET", "/admin/v1/restart-check"))[1]["epoch"]
    cases = [("another", epochs), (shard.master, epochs + 1), (shard.master, epochs)]
    for uuid, seen in cases:  # the last one is right, but nobody else could lead
        with pytest.raises(BlockedError):
            await asked.admin.handover(asked.one, uuid=uuid, epoch=seen, operator_epoch=epoch)
    with pytest.raises(BlockedError):
        await asked.admin.elect(asked.one, uuid="another", operator_epoch=epoch)
    with pytest.raises(SilentError):
        await asked.admin.elect(NOWHERE, uuid="another", operator_epoch=epoch)


async def test_nobody_there_is_no_answer_and_no_epoch(asked: Asked) -> None:
    with pytest.raises(RetryError):
        await asked.admin.raise_epoch([NOWHERE])
    with pytest.raises(RetryError):
        await asked.admin.raise_epoch([])


@asynccontextmanager
async def answering(text: str, status: int = 200) -> AsyncIterator[str]:
    """Serve one answer to everything."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_an_answer_that_is_none_of_ours_is_no_answer() -> None:
    async with BrokerHttp(lambda: "id") as http:
        admin = AdminClient(http.with_token(None))
        answers = (("<html>", 200), ("{}", 401), ("", 500), ("[]", 404), ("[1]", 200))
        unknown = RemainingContent(writable_queues=0, unread_messages=1)
        for text, status in (*answers, ('{"shards": [{}], "status": 3}', 200)):
            async with answering(text, status) as url:
                assert await admin.registry([url]) is None
                assert await admin.probe(url) is None
                assert await admin.remaining([url], 0) in (None, unknown)


async def test_an_epoch_that_somebody_else_raises_is_raised_again(asked: Asked) -> None:
    finder = BrokerFinder(FakeKubePort(), asked.http)
    mine = finder._epoch(("mq", "demo", TOKEN))
    admin = AdminClient(asked.http.with_token(TOKEN), mine.seen)
    first = await mine.get(admin, asked.brokers)
    assert await mine.get(admin, asked.brokers) == first
    theirs = await asked.admin.raise_epoch(asked.brokers)
    await admin.registry(asked.brokers)
    assert await mine.get(admin, asked.brokers) > theirs
