"""ImagoUsers on two real brokers: they show what they were told, and a deleted user is gone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from imago_operator.brokers.contents import Contents
from imago_operator.brokers.http import BrokerHttp
from imago_operator.contents.belonging import claimant_of
from imago_operator.contents.tokens import TokenLook, ours, request_of
from imago_operator.contents.users import UserLook, wanted
from imago_operator.errors import InvalidError, RetryError
from imago_operator.spec.kinds import USER
from imago_testing.clusters.shard_pair import running_pair
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.peers.admin import TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_operator.contents.values import IssuedToken

ACLS: list[dict[str, Any]] = [
    {
        "effect": effect,
        "resource": resource,
        "operations": operations,
        **({"hosts": ["10.0.0.0/8", "::1"]} if effect == "Deny" else {}),
    }
    for effect in ("Allow", "Deny")
    for resource in (
        {"type": "Topic", "name": "orders"},
        {"type": "Group", "name": "orders", "patternType": "prefix"},
        {"type": "Transaction", "patternType": "prefix"},
        {"type": "Pipeline", "name": "lake"},
        {"type": "Any", "patternType": "prefix"},
        {"type": "Cluster"},
    )
    for operations in (["list", "describe"], ["all"])
    if resource != {"type": "Cluster"} or operations != ["all"]
]
BY_TOKEN = {"spec.userName": "ann", "spec.authentication": {"type": "Token"}}
QUOTAS = {"producerBytesPerSecond": 1 << 20, "connections": 5, "connectionsPerAddress": 2}


@pytest.fixture(name="cluster")
async def _cluster(tmp_path: Path) -> AsyncIterator[tuple[Contents, list[str], int]]:
    """The operator's calls, the brokers' addresses, and its epoch."""
    ids = iter(range(1000))
    async with (
        running_pair(tmp_path, closed=True) as pair,
        BrokerHttp(lambda: f"id-{next(ids)}") as http,
    ):
        ports = (admin.broker.ports.admin_port for admin in (pair.one, pair.two))
        yield Contents(http.with_token(TOKEN)), [f"http://127.0.0.1:{port}" for port in ports], 1


def body(name: str = "ann", **spec: Any) -> dict[str, Any]:
    """Return what the operator sends of a user."""
    said = {f"spec.{key}": value for key, value in ({"userName": name} | spec).items()}
    made = manifest(USER.name, said, name=name)
    made["metadata"] |= {"namespace": "mq", "uid": "1"}
    assert list(USER.problems(made)) == []
    look = UserLook(me=claimant_of(made), spec=USER.read(made), name=name, is_super=name == "root")
    return wanted(look)


async def test_brokers_show_every_rule_as_the_operator_says_it(
    cluster: tuple[Contents, list[str], int],
) -> None:
    """Else it would tell them again and again."""
    contents, brokers, epoch = cluster
    told = body(authorization={"acls": ACLS}, quotas=QUOTAS)
    secret = {"password": "of-ann-alone", "signs": True}
    await contents.put_user(brokers, "ann", told | secret, operator_epoch=epoch)
    for broker in brokers:
        ann = (await contents.users([broker]))["ann"]
        assert list(ann.rules) == told["rules"]
        assert ann.quotas == told["quotas"] == QUOTAS
        assert (ann.is_super, ann.enabled, ann.signs) == (False, True, True)


async def test_users_without_a_password_and_those_that_may_do_everything(
    cluster: tuple[Contents, list[str], int],
) -> None:
    contents, brokers, epoch = cluster
    external = {"authentication": {"type": "External"}}
    await contents.put_user(
        brokers, "anonymous", body("anonymous", **external), operator_epoch=epoch
    )
    told = body("root", **external) | {"password": None}
    await contents.put_user(brokers, "root", told, operator_epoch=epoch)
    found = await contents.users(brokers[1:])
    assert list(found["anonymous"].rules) == told["rules"]
    assert (found["root"].is_super, found["root"].has_password) == (True, False)


async def test_a_deleted_user_is_gone_from_all_shards_and_gone_is_done(
    cluster: tuple[Contents, list[str], int],
) -> None:
    contents, brokers, epoch = cluster
    told = body() | {"password": "of-ann-alone", "signs": True}
    await contents.put_user(brokers, "ann", told, operator_epoch=epoch)
    for _ in range(2):
        await contents.delete_user(brokers, "ann", operator_epoch=epoch)
        for broker in brokers:
            assert "ann" not in await contents.users([broker])


async def test_tokens_follow_each_other_and_let_the_user_in_until_they_are_revoked(
    cluster: tuple[Contents, list[str], int],
) -> None:
    contents, brokers, epoch = cluster
    await contents.put_user(brokers, "ann", body() | {"password": None}, operator_epoch=epoch)
    made: list[IssuedToken] = []
    for _ in range(3):
        look = TokenLook(
            spec=USER.read(manifest(USER.name, BY_TOKEN, name="ann")),
            secret=made[-1].token if made else "",
            told=None,
            user=(await contents.users(brokers))["ann"],
        )
        assert look.is_known == bool(made)
        asked = request_of(look, ordered=len(made) == 2)
        made.append(await contents.make_token(brokers, "ann", asked, operator_epoch=epoch))
    for broker in brokers:
        seen = list(ours((await contents.users([broker]))["ann"]))
        assert [one.number for one in seen] == [one.number for one in made[1:]]
        assert seen[0].expires_ms < made[1].expires_ms, "an order has it end earlier"
        assert seen[1].expires_ms == made[2].expires_ms
        assert [await _lets_in(broker, one.token) for one in made] == [False, True, True]
    for one in (made[2], made[2]):  # gone is done
        await contents.revoke_token(brokers, "ann", one.number, operator_epoch=epoch)
    for broker in brokers:
        assert [await _lets_in(broker, one.token) for one in made] == [False, True, False]


async def test_a_token_is_made_though_a_shard_has_no_admin_interface(tmp_path: Path) -> None:
    ids = iter(range(1000))
    async with (
        running_pair(tmp_path, closed=True) as pair,
        BrokerHttp(lambda: f"id-{next(ids)}") as http,
    ):
        ports = [admin.broker.ports.admin_port for admin in (pair.two, pair.one)]
        brokers = [f"http://127.0.0.1:{port}" for port in ports]
        contents = Contents(http.with_token(TOKEN))
        await contents.put_user(brokers, "ann", body() | {"password": None}, operator_epoch=1)
        await pair.two.broker.ports.admin.stop()
        asked = {"expiresSeconds": 60, "note": "ours"}
        made = await contents.make_token(brokers, "ann", asked, operator_epoch=1)
        assert await _lets_in(brokers[1], made.token)
        [seen] = (await contents.users(brokers))["ann"].tokens
        assert seen.number == made.number


@pytest.mark.parametrize(
    ("status", "code", "others"),
    [
        (503, "no_master", 1),
        (503, "users_awaited", 1),
        (503, "not_replicated", 1),
        (503, "changed_meanwhile", 1),
        (503, "registry_unavailable", 1),
        (401, "unauthorized", 1),
        (502, "master_unreachable", 0),
        (502, "shard_failed", 0),
        (503, "not_settled", 0),
        (503, "not_master", 0),
        (500, "internal", 0),
        (0, "it hangs up", 0),
    ],
)
async def test_a_token_that_may_have_been_made_is_asked_of_nobody_else(
    status: int, code: str, others: int
) -> None:
    told = {"number": "n", "expires": 0, "token": "imt.ann.n.s"}
    async with (
        answering(status, {"error": code}) as (first, _),
        answering(200, told) as (second, asked),
        BrokerHttp(lambda: "id") as http,
    ):
        contents, brokers = Contents(http.with_token(TOKEN)), [first, second]
        if others:
            made = await contents.make_token(brokers, "ann", {}, operator_epoch=1)
            assert made.number == "n"
        else:
            with pytest.raises(RetryError):
                await contents.make_token(brokers, "ann", {}, operator_epoch=1)
        assert len(asked) == others


@asynccontextmanager
async def answering(status: int, body: dict[str, Any]) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve one answer to everything; 0: none. Yields where, and what was asked."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        if not status:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(body, status=status or 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


async def _lets_in(broker: str, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{broker}/admin/v1/session"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.status in (200, 401)
        return answer.status == 200


async def test_what_brokers_refuse_is_no_reason_to_try_again(
    cluster: tuple[Contents, list[str], int],
) -> None:
    contents, brokers, epoch = cluster
    with pytest.raises(InvalidError, match="password"):
        await contents.put_user(brokers, "ann", body() | {"password": "x"}, operator_epoch=epoch)
