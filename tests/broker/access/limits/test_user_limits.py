"""Users, rules, passwords and tokens have limits: small ones here, so that each is crossed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.admin.resources import users as routes
from imago_broker.model.access import access as rules
from imago_broker.model.access import users
from imago_broker.service.access import access_edits
from imago_testing.peers.admin import TOKEN, Admin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker

RULE = {"resource": {"type": "Topic", "name": "orders"}, "operations": ["publish"]}


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with aiohttp.ClientSession() as session:
        yield Admin(session, broker)


async def call(admin: Admin, body: dict[str, Any], path: str = "ann", method: str = "PUT") -> Any:
    """Return the status, and what a refusal says."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    status, answer = await admin.call(method, f"/admin/v1/users/{path}", body, **headers)
    return status if status == 200 else (status, answer["message"])


@pytest.mark.parametrize(
    ("module", "limit", "fits", "passes", "said"),
    [
        (rules, "RULES_MAX", {"rules": [RULE] * 2}, {"rules": [RULE] * 3}, "at most 2"),
        (
            rules,
            "HOSTS_MAX",
            {"rules": [RULE | {"hosts": ["10.1.2.3"] * 2}]},
            {"rules": [RULE | {"hosts": ["10.1.2.3"] * 3}]},
            "at most 2",
        ),
        (
            rules,
            "NAME_SIZE_MAX",
            {"rules": [RULE | {"resource": {"type": "Topic", "name": "ab"}}]},
            {"rules": [RULE | {"resource": {"type": "Topic", "name": "abc"}}]},
            "at most 2",
        ),
        (users, "SECRET_SIZE_MAX", {"password": "p" * 6}, {"password": "p" * 9}, "at most"),
        (routes, "FORMER_SECONDS_MAX", {"formerSeconds": 2}, {"formerSeconds": 3}, "0 to 2"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isupper() else "",
)
async def test_what_a_user_may_have_is_limited(
    admin: Admin,
    module: Any,
    limit: str,
    fits: dict[str, Any],
    passes: dict[str, Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await call(admin, {"password": "password"}) == 200
    monkeypatch.setattr(module, limit, 8 if limit == "SECRET_SIZE_MAX" else 2)
    assert await call(admin, {"password": "secret"} | fits) == 200
    status, message = await call(admin, {"password": "secret"} | passes)
    assert status == 400
    assert said in message


async def test_users_and_names_are_limited(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_edits, "USERS_MAX", len(admin.broker.core.access.users) + 1)
    assert await call(admin, {"password": "password"}, "ann") == 200
    status, message = await call(admin, {"password": "password"}, "bob")
    assert status == 400
    assert "which is the limit" in message
    assert await call(admin, {"password": "another"}, "ann") == 200, "there is no new one"
    monkeypatch.setattr(users, "NAME_SIZE_MAX", 2)
    status, message = await call(admin, {"password": "password"}, "eve")
    assert (status, "at most 2" in message) == (400, True)


async def test_tokens_are_limited(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "TOKENS_MAX", 2)
    monkeypatch.setattr(routes, "TOKEN_SECONDS_MAX", 60)
    assert await call(admin, {"password": "password"}) == 200
    status, message = await call(admin, {"expiresSeconds": 61}, "ann/tokens", "POST")
    assert (status, "61" in message) == (400, True)
    for _ in range(2):
        assert await call(admin, {"expiresSeconds": 60}, "ann/tokens", "POST") == 200
    status, message = await call(admin, {"expiresSeconds": 60}, "ann/tokens", "POST")
    assert (status, "at most 2 tokens" in message) == (400, True)
