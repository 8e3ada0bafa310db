"""Service accounts of Kubernetes as users: what an API server says of their tokens."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from imago_broker.admin.token_review import KEPT_MS, PATH, TokenReviewer, account_of
from imago_broker.app import Broker
from imago_broker.config import BrokerConfig
from imago_broker.config.sections.section import ConfigError
from imago_broker.config.sections.security_sections import TokenReviewSection
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.admin import Admin, broker_config
from imago_testing.processes.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKEN_OF_ANN = "head.body.signature"
OWN = "own-token"
LIST = frozenset({Operation.DESCRIBE, Operation.LIST})


def said(name: str = "system:serviceaccount:orders:ann", **more: Any) -> dict[str, Any]:
    status = {"authenticated": True, "user": {"username": name}, "audiences": ["imago"]}
    return {"status": status | more}


class ApiServer:
    """Answers TokenReviews over TLS, and notes what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = said()
        self.status = 201
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def review(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append((request.headers["Authorization"], body["spec"]))
        return web.json_response(self.answer, status=self.status)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[ApiServer, TokenReviewSection]]:
    import ssl

    authority, server = Authority(folder / "tls"), ApiServer()
    pair = authority.issue("api")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    app = web.Application()
    app.router.add_post(PATH, server.review)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    (folder / "own").write_text(f"{OWN}\n")
    port = runner.addresses[0][1]
    try:
        yield (
            server,
            TokenReviewSection(
                url=f"https://localhost:{port}",
                ca_file=str(authority.file),
                token_file=str(folder / "own"),
            ),
        )
    finally:
        await runner.cleanup()


@pytest.fixture(name="world")
async def _world(tmp_path: Path) -> AsyncIterator[tuple[ApiServer, Admin]]:
    async with serving(tmp_path) as (server, section):
        base = broker_config(tmp_path)
        acl = replace(base.acl, enabled=True)
        broker = Broker(replace(base, acl=acl, token_review=section))
        await broker.start()
        try:
            async with aiohttp.ClientSession() as session:
                yield server, Admin(session, broker)
        finally:
            await broker.stop()


async def ask(admin: Admin, token: str = TOKEN_OF_ANN) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return (await admin.call("GET", "/admin/v1/cluster", **headers))[0]


def allow(admin: Admin) -> None:
    rule = AccessRule(Resource(AccessKind.CLUSTER), LIST)
    access = admin.broker.core.access
    access.put_account(User(name="ann@orders"), [rule], Actor("the tests", "nowhere"))


async def test_an_account_has_the_rights_of_the_user_of_its_name(
    world: tuple[ApiServer, Admin],
) -> None:
    server, admin = world
    assert await ask(admin) == 403, "known, and without a right"
    allow(admin)
    assert await ask(admin) == 200
    assert server.asked == [(f"Bearer {OWN}", {"token": TOKEN_OF_ANN, "audiences": ["imago"]})], (
        "asked once"
    )
    admin.broker.core.access.delete_user("ann@orders", Actor("the tests", "nowhere"))
    assert await ask(admin) == 403


@pytest.mark.parametrize(
    "answer",
    [
        {"status": {"authenticated": False}},
        said(audiences=["https://kubernetes.default.svc"]),
        said(audiences=[]),
        said("ann"),
        said("system:node:one"),
        said("system:serviceaccount:orders"),
        said("system:serviceaccount:orders:" + "a" * 80),
        {"status": {"authenticated": "yes"}},
        {"status": None},
        [],
        "what",
    ],
)
async def test_who_is_no_account_for_us_is_nobody(
    world: tuple[ApiServer, Admin], answer: Any
) -> None:
    server, admin = world
    allow(admin)
    server.answer = answer
    assert await ask(admin) == 401


async def test_an_api_server_that_does_not_say_lets_nobody_in(
    world: tuple[ApiServer, Admin],
) -> None:
    server, admin = world
    allow(admin)
    server.status = 403
    headers = {"Authorization": f"Bearer {TOKEN_OF_ANN}"}
    status, told = await admin.call("GET", "/admin/v1/cluster", **headers)
    assert (status, told["error"]) == (503, "token_not_reviewed")
    assert TOKEN_OF_ANN not in str(told)
    server.status = 201
    assert await ask(admin) == 200, "it is asked again"


async def test_only_what_looks_like_such_a_token_is_shown_to_the_api_server(
    world: tuple[ApiServer, Admin],
) -> None:
    server, admin = world
    for token in ("imt.ann.12.secret", "a.b", "a b.c.d", "\u00e4.b.c"):
        assert await ask(admin, token) == 401
    assert server.asked == []


class HandClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def epoch_ms(self) -> int:
        return self.now_ms


async def test_answers_count_for_a_while(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, section):
        clock = HandClock()
        reviewer = TokenReviewer(section, clock)  # type: ignore[arg-type]  # no more is asked of it
        assert await reviewer.user_of(TOKEN_OF_ANN) == "ann@orders"
        server.answer = {"status": {"authenticated": False}}
        clock.now_ms = KEPT_MS - 1
        assert await reviewer.user_of(TOKEN_OF_ANN) == "ann@orders"
        clock.now_ms = KEPT_MS
        assert await reviewer.user_of(TOKEN_OF_ANN) == ""


def test_without_an_api_server_nobody_is_asked() -> None:
    assert account_of(said(), "imago") == "ann@orders"
    assert account_of(said(), "other") == ""
    assert TokenReviewSection().url == ""


@pytest.mark.parametrize(
    "given",
    [
        {"url": "http://api", "token_file": "own"},
        {"url": "https://api"},
        {"url": "https://api", "token_file": "own", "audience": ""},
    ],
)
def test_settings_that_cannot_be(given: dict[str, str]) -> None:
    with pytest.raises((ConfigError, ValueError), match="token_review"):
        BrokerConfig(token_review=TokenReviewSection(**given))
