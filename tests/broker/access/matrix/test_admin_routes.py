"""Every admin route, with no credentials, wrong ones, without the right, and with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.admin import rights as route_rights
from imago_broker.admin.calls.identity import COOKIE, CSRF
from imago_broker.admin.routes import ROUTES
from imago_broker.model.access.access import AccessKind, AccessRule, Resource
from imago_broker.model.access.users import User, hash_of, new_token
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.admin import TOKEN, Admin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from imago_broker.app import Broker
    from imago_broker.model.access.access import Need

BY = Actor("the tests", "nowhere")
OF_MESSAGES = "/{function:[pgo].*}"
"""MetaQ's messages: the rules of its commands decide, and none has a user to log in with."""
OPEN = {
    *(
        "/",
        "/dashboard/{file}",
        "/healthz",
        "/livez",
        "/readyz",
        "/writez",
        "/metrics",
        "/login",
        "/logout",
    ),
    OF_MESSAGES,
}


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Admin(session, broker)


def have(broker: Broker, user: User, needs: Iterable[Need] = ()) -> None:
    rules = [
        AccessRule(
            Resource(kind, "" if kind is AccessKind.CLUSTER else name), frozenset({operations[-1]})
        )
        for operations, kind, name in needs
    ]
    broker.core.access.put_account(user, rules, BY)


OF_SUPERS = {"PUT /admin/v1/access"}
"""Who is not checked may do everything, so such lists take more than the right to administer."""


class Request:
    """What a right sees of a request."""

    def __init__(self, path: str) -> None:
        self.match_info = dict.fromkeys(re.findall(r"\{([a-z]+)", path), "orders")
        self.query = {"topic": "orders"} if path.endswith("/messages") else {}


def asked(path: str) -> str:
    path = re.sub(r"\{[a-z]+:([a-z]+)[|a-z]*\}", r"\1", path)
    # What is live would not end: its caller is let in, and the path is not there.
    queries = {"messages": "?topic=orders", "live": "?path=x"}
    return re.sub(r"\{[a-z]+\}", "orders", path) + queries.get(path.rpartition("/")[2], "")


def test_what_is_open_is_listed_here_too() -> None:
    assert {path for _, path, _, right in ROUTES if right is route_rights.open_to_all} == OPEN


async def test_the_matrix_of_routes(admin: Admin) -> None:
    """Being on this machine, though trusted without access control, opens nothing."""
    broker, wrong = admin.broker, {}
    assert broker.config.admin.loopback_trusted
    tester, token = new_token(User(name="tester"), expires_ms=0, note="")
    bearer = {"Authorization": f"Bearer {token}"}
    for method, path, _, right in ROUTES:
        if path in OPEN:
            continue
        found, url = [], asked(path)
        have(broker, tester)
        for what, headers, statuses in (
            ("no credentials", {}, {401}),
            ("a wrong token", {"Authorization": f"Bearer {token}x"}, {401}),
            ("another scheme", {"Authorization": f"Basic {token}"}, {401}),
            ("no right", bearer, {200, 400} if right is route_rights.any_user else {403}),
        ):
            status, _ = await admin.call(method, url, {}, **headers)
            if status not in statuses:
                found.append(f"{status} with {what}")
        if right not in (route_rights.of_members, route_rights.any_user):
            needs = list(right(_services(broker), Request(path)))  # type: ignore[arg-type]
            have(broker, tester, needs)
            status, body = await admin.call(method, url, {}, **bearer)
            if (status in (401, 403)) != (f"{method} {path}" in OF_SUPERS):
                found.append(f"{status} with the right: {body}")
        if found:
            wrong[f"{method} {path}"] = found
    assert wrong == {}


def _services(broker: Broker) -> Any:
    return broker.admin_services()


async def test_a_path_without_a_right_is_denied(admin: Admin) -> None:
    tester, token = new_token(User(name="tester"), expires_ms=0, note="")
    have(admin.broker, tester)
    bearer = {"Authorization": f"Bearer {token}"}
    assert (await admin.call("PUT", "/admin/v1/unknown", {}))[0] == 401
    assert (await admin.call("PUT", "/admin/v1/unknown", {}, **bearer))[0] == 403


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/admin/v1/topics/orders", "topic:orders describe"),
        ("/admin/v1/topics/a%20b", "topic:TOPIC describe"),
        ("/admin/v1/groups/%25RETRY%25g", "group:%RETRY%g describe"),
        ("/admin/v1/users", "cluster administer"),
    ],
)
async def test_a_refusal_names_the_command_that_gives_the_right(
    admin: Admin, path: str, right: str
) -> None:
    tester, token = new_token(User(name="tester"), expires_ms=0, note="")
    have(admin.broker, tester)
    status, said = await admin.call("GET", path, Authorization=f"Bearer {token}")
    assert (status, said["error"]) == (403, "forbidden")
    assert said["cure"] == f"An administrator gives rights: `imago user allow tester {right}`."


async def test_users_and_tokens_are_listed_by_commands(admin: Admin) -> None:
    root = {"Authorization": f"Bearer {TOKEN}"}
    _, said = await admin.call("GET", "/admin/v1/users/nobody", **root)
    assert "`imago user list`" in said["cure"]
    _, said = await admin.call("DELETE", "/admin/v1/users/nobody/tokens/1", **root)
    assert "`imago user show nobody`" in said["cure"]


async def test_tokens_end_and_are_taken_back(admin: Admin) -> None:
    root = {"Authorization": f"Bearer {TOKEN}"}
    status, answer = await admin.call("PUT", "/admin/v1/users/ann", {"super": True}, **root)
    assert (status, answer["user"]["super"], answer["shards"]) == (200, True, {"shard-0": "ok"})
    tokens = "/admin/v1/users/ann/tokens"
    status, made = await admin.call("POST", tokens, {"expiresSeconds": 60, "note": "ci"}, **root)
    assert status == 200
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert (await admin.call("GET", "/admin/v1/status", **bearer))[0] == 200
    status, shown = await admin.call("GET", "/admin/v1/users/ann", **bearer)
    assert [token["note"] for token in shown["tokens"]] == ["ci"]
    assert made["token"].rpartition(".")[2] not in str(shown)
    status, _ = await admin.call("DELETE", f"{tokens}/{made['number']}", **root)
    assert status == 200
    assert (await admin.call("GET", "/admin/v1/status", **bearer))[0] == 401
    user, old = new_token(admin.broker.core.access.users["ann"], expires_ms=1, note="")
    have(admin.broker, user)
    expired = {"Authorization": f"Bearer {old}"}
    assert (await admin.call("GET", "/admin/v1/status", **expired))[0] == 401


async def test_a_session_of_the_dashboard(admin: Admin) -> None:
    have(admin.broker, User(name="ann", is_super=True, hashed=hash_of("password", b"salt")))
    for name, password in (("ann", "passwore"), ("eve", "password"), ("ann", "")):
        status, _ = await admin.call("POST", "/login", {"user": name, "password": password})
        assert status == 401
    port = admin.broker.ports.admin_port
    told = {"user": "ann", "password": "password"}
    async with admin.session.post(f"http://127.0.0.1:{port}/login", json=told) as answer:
        assert answer.status == 200
        csrf = (await answer.json())["csrf"]
        cookie = answer.cookies[COOKIE]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    sent = {"Cookie": f"{COOKIE}={cookie.value}"}
    status, shown = await admin.call("GET", "/admin/v1/session", **sent)
    assert (status, shown) == (200, {"user": "ann", "csrf": csrf})
    status, body = await admin.call("PUT", "/admin/v1/topics/orders", {}, **sent)
    assert (status, body["error"]) == (403, "no_csrf_token")
    status, _ = await admin.call("PUT", "/admin/v1/topics/orders", {}, **sent, **{CSRF: csrf})
    assert status == 201
    name, ends, told_hash = cookie.value.split("|")
    for forged in (f"root|{ends}|{told_hash}", f"{name}|{int(ends) + 1}|{told_hash}", "ann||", "x"):
        status, _ = await admin.call("GET", "/admin/v1/status", Cookie=f"{COOKIE}={forged}")
        assert status == 401
    have(admin.broker, User(name="ann", is_super=True, hashed=hash_of("another", b"salt")))
    assert (await admin.call("GET", "/admin/v1/status", **sent))[0] == 401, "the password changed"


async def test_only_super_users_change_super_users(admin: Admin) -> None:
    root = {"Authorization": f"Bearer {TOKEN}"}
    await admin.call("PUT", "/admin/v1/users/root", {"super": True}, **root)
    rule = {"resource": {"type": "Cluster"}, "operations": ["all"]}
    status, _ = await admin.call("PUT", "/admin/v1/users/ann", {"rules": [rule]}, **root)
    assert status == 200
    _, made = await admin.call("POST", "/admin/v1/users/ann/tokens", {}, **root)
    ann = {"Authorization": f"Bearer {made['token']}"}
    assert (await admin.call("PUT", "/admin/v1/users/bob", {"password": "password"}, **ann))[
        0
    ] == 200
    for method, path, body in (
        ("PUT", "/admin/v1/users/ann", {"super": True}),
        ("PUT", "/admin/v1/users/root", {"password": "password"}),
        ("DELETE", "/admin/v1/users/root", {}),
        ("POST", "/admin/v1/users/root/tokens", {}),
    ):
        assert (await admin.call(method, path, body, **ann))[0] == 403


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("..%2Fann", {"password": "password"}),
        ("ann*", {"password": "password"}),
        ("%D0%B0nn", {"password": "password"}),
        ("ann", {"password": "short"}),
        ("ann", {"password": 5, "signs": "yes"}),
        ("ann", {"super": "yes"}),
        ("ann", {"rules": [{"resource": {"type": "Topic", "name": "a*b"}, "operations": ["all"]}]}),
        ("ann", {"rules": "all"}),
        ("ann", {"colour": "red"}),
        ("anonymous", {"password": "password"}),
    ],
)
async def test_users_that_cannot_be(admin: Admin, name: str, body: dict[str, Any]) -> None:
    root = {"Authorization": f"Bearer {TOKEN}"}
    status, answer = await admin.call("PUT", f"/admin/v1/users/{name}", body, **root)
    assert (status, answer["error"]) == (400, "bad_request")
    assert admin.broker.core.access.users == {}
