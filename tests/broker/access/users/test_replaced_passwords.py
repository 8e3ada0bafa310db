"""A password that was replaced goes on to count for a while, where that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.model.access.plain_acl import Account, account_user
from imago_broker.model.access.users import User, user_problem
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.admin import TOKEN, Admin
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.signing import call_signed
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker

BY = Actor("the tests", "nowhere")
FIRST, SECOND, THIRD = "password-1", "password-2", "password-3"
WRONG = "check signature failed."


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with aiohttp.ClientSession() as session:
        yield Admin(session, broker)


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RemotingPeer]:
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    yield peer
    await peer.close()


async def put(admin: Admin, **body: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    status, answer = await admin.call("PUT", "/admin/v1/users/ann", body, **headers)
    assert status == 200, answer
    return dict(answer["user"])


async def counting(peer: RemotingPeer) -> list[str]:
    """Return the passwords that requests may be signed with."""
    found = []
    for secret in (FIRST, SECOND, THIRD):
        answer = await call_signed(peer, Code.GET_BROKER_CONFIG, {}, b"", user="ann", secret=secret)
        if answer.code == 0:
            found.append(secret)
        else:
            assert WRONG in (answer.remark or "")
    return found


async def test_both_count_until_the_former_ends(admin: Admin, peer: RemotingPeer) -> None:
    access = admin.broker.core.access
    await put(admin, password=FIRST, super=True)
    assert await counting(peer) == [FIRST]
    shown = await put(admin, password=SECOND, formerSeconds=600)
    assert await counting(peer) == [FIRST, SECOND]
    assert shown["formerUntil"] > 0
    assert FIRST not in str(shown)
    assert SECOND not in str(shown)
    now_ms = shown["formerUntil"]
    assert access.users["ann"].signing_keys(now_ms - 1) == (SECOND, FIRST)
    assert access.users["ann"].signing_keys(now_ms) == (SECOND,)


async def test_a_repeat_lengthens_it_and_forgets_nothing(admin: Admin, peer: RemotingPeer) -> None:
    await put(admin, password=FIRST, super=True)
    before = await put(admin, password=SECOND, formerSeconds=60)
    after = await put(admin, password=SECOND, formerSeconds=600)
    assert after["formerUntil"] > before["formerUntil"]
    assert await put(admin, password=SECOND) == after
    assert await counting(peer) == [FIRST, SECOND]
    await put(admin, password=THIRD, formerSeconds=60)
    assert await counting(peer) == [SECOND, THIRD], "one former password, not all of them"


async def test_without_being_asked_nothing_former_counts(admin: Admin, peer: RemotingPeer) -> None:
    await put(admin, password=FIRST, super=True)
    await put(admin, password=SECOND, formerSeconds=600)
    await put(admin, password=THIRD)
    assert await counting(peer) == [THIRD]


async def test_a_password_is_taken_away(admin: Admin, peer: RemotingPeer) -> None:
    await put(admin, password=FIRST, super=True)
    await put(admin, password=SECOND, formerSeconds=600)
    shown = await put(admin, password=None)
    assert (shown["password"], shown["signs"]) == (False, False)
    assert await counting(peer) == []


def test_tools_of_rocketmq_leave_no_former_password() -> None:
    user = User(name="ann-of-4", secret=FIRST).with_secret(SECOND, former_until_ms=10)
    account = Account(access_key="ann-of-4", secret_key=THIRD)
    assert account_user(account, user).signing_keys(0) == (THIRD,)


def test_a_user_is_kept_with_its_former_password() -> None:
    user = User(name="ann", secret=FIRST).with_secret(SECOND, former_until_ms=10)
    assert User.from_json("ann", user.to_json()) == user
    assert "former" not in User(name="ann", secret=FIRST).to_json()
    assert user_problem(user) is None


@pytest.mark.parametrize("seconds", [-1, 7 * 86_400 + 1, "60", True, 1.5, None])
async def test_times_that_cannot_be(admin: Admin, seconds: object) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    body = {"password": FIRST, "formerSeconds": seconds}
    status, answer = await admin.call("PUT", "/admin/v1/users/ann", body, **headers)
    assert (status, "formerSeconds" in answer["message"]) == (400, True), answer
