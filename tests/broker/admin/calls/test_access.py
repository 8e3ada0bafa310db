"""Who is let in: by the token, by a signature made with it, or by being on the machine."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from imago_broker.admin import access
from imago_broker.admin.routes import ROUTES, rights_by_route
from imago_broker.app import Broker
from imago_broker.shard_work.calls import call
from imago_broker.shard_work.signing import CLOCKS_DIFFER_MS_MAX, SCHEME, is_signed, signature
from imago_testing.peers.admin import TOKEN, Admin, broker_config
from imago_testing.processes.ports import free_port_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_testing.clusters.shard_pair import Pair

TOPIC = "/admin/v1/topics/orders"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
LOCAL = [{}, {"Host": "localhost:1"}, {"Host": "127.0.0.1"}, {"Host": "[::1]:1"}]


@pytest.fixture
async def distrusting(tmp_path: Path) -> AsyncIterator[Admin]:
    """A broker as a pod or a hand starts it."""
    config = broker_config(tmp_path)
    broker = Broker(replace(config, admin=replace(config.admin, loopback_trusted=False)))
    await broker.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Admin(session, broker)
    finally:
        await broker.stop()


@pytest.mark.parametrize("headers", LOCAL)
async def test_callers_on_the_machine_need_no_token_where_that_is_said(
    admin: Admin, headers: dict[str, str]
) -> None:
    assert (await admin.call("PUT", TOPIC, {"queues": 1}, **headers))[0] == 201


@pytest.mark.parametrize("headers", LOCAL)
async def test_they_need_it_everywhere_else(distrusting: Admin, headers: dict[str, str]) -> None:
    status, error = await distrusting.call("PUT", TOPIC, {"queues": 1}, **headers)
    assert (status, error["error"]) == (401, "unauthorized")
    assert (await distrusting.call("PUT", TOPIC, {"queues": 1}, **RIGHT))[0] == 201


async def test_without_a_token_the_refusal_says_how_to_get_in(
    distrusting: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = distrusting.broker.config
    without = replace(config, admin=replace(config.admin, token_file=""))
    monkeypatch.setattr(distrusting.broker, "config", without)
    status, error = await distrusting.call("GET", "/admin/v1/status")
    assert status == 401
    assert "this broker has none" in error["message"]
    for way in ("IMAGO__ADMIN__TOKEN_FILE", "IMAGO_ADMIN_TOKEN_FILE", "admin.loopback_trusted"):
        assert way in error["cure"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Forwarded": "for=10.0.0.9"},
        {"X-Forwarded-For": "10.0.0.9"},
        {"X-Forwarded-Host": "imago.example"},
        {"x-forwarded-anything": ""},
        {"Via": "1.1 gate"},
        {"X-Real-IP": "10.0.0.9"},
    ],
)
async def test_a_proxy_on_the_machine_lets_nobody_in(admin: Admin, headers: dict[str, str]) -> None:
    status, error = await admin.call("PUT", TOPIC, {"queues": 1}, **headers)
    assert (status, error["error"]) == (401, "unauthorized")
    assert "proxy" in error["message"]
    assert (await admin.call("GET", TOPIC))[0] == 404
    assert (await admin.call("PUT", TOPIC, {"queues": 1}, **headers, **RIGHT))[0] == 201


@pytest.mark.parametrize(
    "given",
    [f"Bearer {TOKEN}x", "Bearer imt.ann.0123.secret", "Bearer ", "Basic cm9vdDpyb290", "", SCHEME],
)
@pytest.mark.parametrize("has_token", [True, False])
async def test_a_wrong_credential_is_refused_where_none_is_needed(
    admin: Admin, given: str, has_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was meant for another broker: what follows is not to be done to this one."""
    config = admin.broker.config
    token_file = config.admin.token_file if has_token else ""
    without = replace(config, admin=replace(config.admin, token_file=token_file))
    monkeypatch.setattr(admin.broker, "config", without)
    status, error = await admin.call("PUT", TOPIC, {"queues": 1}, Authorization=given)
    assert (status, error["error"]) == (401, "unauthorized")
    assert "IMAGO_ADMIN_TOKEN_FILE" in error["cure"]
    assert (await admin.call("GET", TOPIC))[0] == 404
    status, _ = await admin.call("GET", "/admin/v1/status", Cookie="imago_session=of-another-port")
    assert status == 200, "browsers send cookies to all ports of a host"


@pytest.mark.parametrize("has_token", [True, False])
@pytest.mark.parametrize("body", [{"user": "ann", "password": "password"}, {"token": "imt.a.b.c"}])
async def test_nobody_logs_in_without_access_control(
    admin: Admin, body: dict[str, str], has_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = admin.broker.config
    token_file = config.admin.token_file if has_token else ""
    without = replace(config, admin=replace(config.admin, token_file=token_file))
    monkeypatch.setattr(admin.broker, "config", without)
    status, error = await admin.call("POST", "/login", body)
    assert (status, error["error"]) == (409, "access_control_off")
    assert "acl.enabled" in error["cure"]


async def test_who_has_the_token_may_call_it_by_any_name(distrusting: Admin) -> None:
    for host in ("imago-admin.tenants.svc:8080", "10.42.0.7:8080"):
        status, _ = await distrusting.call("GET", "/admin/v1/status", Host=host, **RIGHT)
        assert status == 200


async def test_refused_and_failed_changes_are_audited(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "imago.audit")
    await admin.call("PUT", TOPIC, {"queues": 1}, Via="1.1 gate")
    await admin.call("PUT", TOPIC, {"queues": -1}, **{"Idempotency-Key": "k\u00e9y"})
    await admin.call("DELETE", "/admin/v1/topics/none")
    await admin.call("PUT", TOPIC, {"queues": 1}, Origin="http://evil.example")
    await admin.call("PUT", TOPIC, {"queues": 1})
    await admin.call("GET", TOPIC)
    said = [record.getMessage() for record in caplog.records if record.name == "imago.audit"]
    assert said == [
        f"PUT {TOPIC} by (not checked) from 127.0.0.1: 401 key=-",
        f"PUT {TOPIC} by (not checked) from 127.0.0.1: 400 key=k\\xe9y",
        "DELETE /admin/v1/topics/none by (not checked) from 127.0.0.1: 404 key=-",
        f"PUT {TOPIC} by (not checked) from 127.0.0.1: 403 key=-",
        f"PUT {TOPIC} by (not checked) from 127.0.0.1: 201 key=-",
    ]


async def signed(admin: Admin, method: str, path: str, /, **changes: Any) -> int:
    """Call as another broker does; what of its signature is changed is no more what is asked."""
    own = admin.broker.coordinator.registered
    assert own is not None
    said = {
        "token": TOKEN,
        "at_ms": admin.broker.clock.epoch_ms(),
        "method": method,
        "target": f"{own.host}:{own.admin}",
        "path": path,
        "body": b"{}",
        **changes,
    }
    headers = {
        "Authorization": f"{SCHEME} {said['at_ms']} {signature(**said)}",
        "Host": str(said["target"]),
    }
    return (await admin.call(method, path, {}, **headers))[0]


async def test_a_signature_stands_for_this_call_to_this_broker_and_now(distrusting: Admin) -> None:
    now_ms = distrusting.broker.clock.epoch_ms()
    path = "/admin/v1/groups/%25RETRY%25g?limit=1"
    assert await signed(distrusting, "PUT", path) == 201
    for changes in (
        {"token": TOKEN + "x"},
        {"token": ""},
        {"method": "DELETE"},
        {"path": path + "0"},
        {"body": b"{} "},
        {"target": "10.0.0.9:8080"},
        {"at_ms": now_ms - CLOCKS_DIFFER_MS_MAX - 60_000},
        {"at_ms": now_ms + CLOCKS_DIFFER_MS_MAX + 60_000},
    ):
        assert await signed(distrusting, "PUT", path, **changes) == 401, changes


@pytest.mark.parametrize(
    "given", ["", SCHEME, f"{SCHEME} x y", f"{SCHEME} {'9' * 30} 0", f"{SCHEME} 0 \udcff"]
)
def test_what_is_no_signature_is_none(given: str) -> None:
    assert not is_signed(given, TOKEN, 0, "GET", "a:1", "/", b"")


async def test_brokers_that_trust_no_loopback_ask_each_other_with_signatures(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "is_loopback", lambda _: False)
    path = "/admin/v1/topics/%25orders"
    status, answer = await pair.one.call("PUT", path, {"queues": 2}, **RIGHT)
    assert (status, answer["shards"]) == (201, {"shard-0": "ok", "shard-1": "ok"})
    assert (await pair.two.call("GET", path, **RIGHT))[0] == 200
    assert (await pair.one.call("DELETE", path, **RIGHT))[0] == 200


async def test_an_address_of_the_registry_gets_neither_token_nor_what_it_could_use(
    distrusting: Admin,
) -> None:
    heard: list[web.Request] = []

    async def hear(request: web.Request) -> web.Response:
        await request.read()
        heard.append(request)
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", hear)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port_block(1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    broker = distrusting.broker
    own = broker.coordinator.registered
    assert own is not None
    stranger = replace(own, admin=port)
    try:
        async with aiohttp.ClientSession() as session:
            services = broker.admin_services()
            asked = call(session, services, stranger, "PUT", TOPIC, headers={}, body=b"{}")
            async with asked as answer:
                assert answer.status == 200
    finally:
        await runner.cleanup()
    (request,) = heard
    assert TOKEN not in str(request.headers)
    # What it was sent opens no other broker.
    given = request.headers["Authorization"]
    status, _ = await distrusting.call("PUT", TOPIC, {}, Authorization=given)
    assert status == 401
    status, _ = await distrusting.call("PUT", TOPIC, {}, Authorization=given, Host=request.host)
    assert status == 401


def test_every_route_has_its_right_by_the_name_that_the_router_gives_it() -> None:
    """A route with an expression in its path has another name: nobody would have its right."""
    rights = rights_by_route()
    for method, path, _, right in ROUTES:
        named = web.UrlDispatcher().add_resource(path).canonical
        assert rights[method, named] is right
