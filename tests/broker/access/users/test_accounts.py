"""A user with its rules and quotas as one account: made, changed and taken away as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.model.access import quotas
from imago_broker.service.access import access_edits
from imago_broker.shard_work.access_spreading import AccessSpreader
from imago_testing.peers.admin import TOKEN, Admin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker

RULE = {"resource": {"type": "Topic", "name": "orders"}, "operations": ["publish"]}
USERS = "/admin/v1/users"


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with aiohttp.ClientSession() as session:
        yield Admin(session, broker)


async def call(admin: Admin, method: str, name: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return await admin.call(method, f"{USERS}/{name}", body, **headers)


@pytest.mark.parametrize("name", ["ann", "anonymous"])
async def test_where_the_quotas_are_refused_nothing_is_changed(
    admin: Admin, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = {"password": "password"} if name == "ann" else {}
    assert (await call(admin, "PUT", name, {**credentials, "rules": [RULE]}))[0] == 200
    monkeypatch.setattr(access_edits, "QUOTAS_MAX", 0)
    before = admin.broker.core.access.records()
    other = RULE | {"operations": ["subscribe"]}
    status, answer = await call(
        admin, "PUT", name, {"rules": [other], "quotas": {"connections": 1}}
    )
    assert (status, "nothing was changed" in answer["cure"]) == (400, True)
    assert admin.broker.core.access.records() == before


@pytest.mark.parametrize("what", ["rules", "quotas"])
async def test_what_another_shard_changed_meanwhile_is_said(
    admin: Admin, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = admin.broker.core.access
    await call(admin, "PUT", "ann", {"password": "password"})
    spread = AccessSpreader.spread

    async def with_others(spreader: AccessSpreader) -> dict[str, str]:
        monkeypatch.setattr(AccessSpreader, "spread", spread)
        found = await spread(spreader)
        kind, key, value = {
            "rules": ("access-rules", "ann", []),
            "quotas": ("access-quota", "user:ann", {"connections": 1000}),
        }[what]
        made = access.made(kind, key)
        assert made is not None
        access.merge([[kind, key, [made[0] + 1, 7], value]])
        return found

    monkeypatch.setattr(AccessSpreader, "spread", with_others)
    body: dict[str, Any] = {"rules": [RULE]} if what == "rules" else {"quotas": {"connections": 1}}
    status, answer = await call(admin, "PUT", "ann", body)
    assert (status, answer["error"]) == (503, "changed_meanwhile")


@pytest.mark.parametrize("rules", [[], [RULE]])
async def test_anonymous_goes_with_its_quotas(admin: Admin, rules: list[Any]) -> None:
    body = {"rules": rules, "quotas": {"connections": 5}}
    assert (await call(admin, "PUT", "anonymous", body))[0] == 200
    assert (await call(admin, "DELETE", "anonymous"))[0] == 200
    access = admin.broker.core.access
    assert access.rules == {}
    assert quotas.subject_of_user("anonymous") not in access.quota_table.quotas
    assert (await call(admin, "DELETE", "anonymous"))[0] == 404
