"""A token that somebody was told counts after a failover; one that might not is told to nobody."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.model.access.users import User
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_testing.peers.admin import Admin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from imago_broker.model.access.users import BearerToken
    from imago_broker.service.access.access import AccessService

TOKEN = "of-the-administrator"
ROOT = {"Authorization": f"Bearer {TOKEN}"}
ANN = "/admin/v1/users/ann"
TOKENS = f"{ANN}/tokens"


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    (tmp_path / "token").write_text(TOKEN)
    made = ShardBrokers(
        tmp_path,
        "admin.enabled=true",
        f"admin.token_file={tmp_path / 'token'}",
        "acl.enabled=true",
        "acknowledgement.timeout_ms=1000",
        replicas=2,
    )
    await made.start(0, 1)
    await made.all_in_sync(0, 1)
    yield made
    await made.close()


@asynccontextmanager
async def admin_of(shard: ShardBrokers, number: int) -> AsyncIterator[Admin]:
    async with aiohttp.ClientSession() as session:
        yield Admin(session, shard.brokers[number])


def tokens_of(shard: ShardBrokers, number: int) -> tuple[BearerToken, ...]:
    return shard.brokers[number].core.access.users["ann"].tokens


async def test_a_token_that_was_told_counts_after_a_failover(shard: ShardBrokers) -> None:
    async with admin_of(shard, 0) as admin:
        status, said = await admin.call("PUT", ANN, {"super": True}, **ROOT)
        assert status == 200, said
        status, made = await admin.call("POST", TOKENS, {}, **ROOT)
        assert status == 200, made
    await shard.kill(0)
    leader = await shard.led()
    bearer = {"Authorization": f"Bearer {made['token']}"}
    async with admin_of(shard, leader) as admin:
        assert (await admin.call("GET", "/admin/v1/status", **bearer))[0] == 200


async def test_none_is_made_while_too_few_members_are_in_sync(shard: ShardBrokers) -> None:
    async with admin_of(shard, 0) as admin:
        await admin.call("PUT", ANN, {"super": True}, **ROOT)
        await shard.kill(1)
        await until(lambda: shard.gate(0).short)
        for _ in range(2):
            status, error = await admin.call("POST", TOKENS, {}, **ROOT)
            assert (status, error["error"]) == (503, "not_replicated")
            assert "Repeat" in error["cure"]
        assert tokens_of(shard, 0) == ()
        await shard.start(1)
        await shard.all_in_sync(0, 1)
        assert (await admin.call("POST", TOKENS, {}, **ROOT))[0] == 200


def change(access: AccessService, how: str) -> None:
    """Change ann in the middle of somebody else's call."""
    by = Actor("another", "nowhere")
    if how == "another change":
        access.put_user(replace(access.users["ann"], enabled=False), by)
    elif how != "nothing":
        access.delete_user("ann", by)
    if how == "made again":
        access.put_user(User(name="ann"), by)


@pytest.mark.parametrize("meanwhile", ["nothing", "another change", "deleted", "made again"])
async def test_one_that_is_short_once_it_is_made_is_taken_back(
    shard: ShardBrokers, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """With what its making has changed of the tokens before, which their user goes on with."""
    access = shard.brokers[0].core.access
    acknowledgements = shard.brokers[0].core.messages.acknowledgements
    asked = list[int]()

    def short_then(done: Callable[..., None], waiting: Any) -> None:
        asked.append(len(tokens_of(shard, 0)))
        if len(asked) == 2:
            change(access, meanwhile)
        done(waiting, PutStatus.OK if len(asked) == 1 else PutStatus.SLAVE_UNAVAILABLE, ())

    async with admin_of(shard, 0) as admin:
        await admin.call("PUT", ANN, {"super": True}, **ROOT)
        note = {"note": "ours", "expiresSeconds": 3600}
        _, first = await admin.call("POST", TOKENS, note, **ROOT)
        await admin.call("POST", TOKENS, note, **ROOT)
        before = tokens_of(shard, 0)
        monkeypatch.setattr(acknowledgements, "when_replicated", short_then)
        follows = {**note, "former": first["number"], "formerSeconds": 1}
        status, error = await admin.call("POST", TOKENS, follows, **ROOT)
    assert (status, error["error"]) == (503, "not_replicated")
    assert asked == [2, 2], "before it is made, and once it is"
    if meanwhile == "deleted":
        assert "ann" not in access.users
    elif meanwhile == "made again":
        assert access.users["ann"].tokens == ()
    else:
        assert tokens_of(shard, 0) == before, "they end when they did"
        assert access.users["ann"].enabled == (meanwhile == "nothing")
