"""Bearer tokens: those that follow another, sessions that are opened with one, and wrong ones."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.admin.calls.identity import COOKIE, CSRF
from imago_broker.app import Broker
from imago_broker.model.access import users
from imago_broker.model.access.users import User, new_token
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.admin import TOKEN, Admin, broker_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.config import BrokerConfig

BY = Actor("the tests", "nowhere")
ROOT = {"Authorization": f"Bearer {TOKEN}"}
TOKENS = "/admin/v1/users/ann/tokens"


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        found = Admin(session, broker)
        await found.call("PUT", "/admin/v1/users/ann", {"super": True}, **ROOT)
        yield found


async def make(admin: Admin, **body: Any) -> dict[str, Any]:
    status, made = await admin.call("POST", TOKENS, body, **ROOT)
    assert status == 200, made
    found: dict[str, Any] = made
    return found


async def counts(admin: Admin, token: str) -> bool:
    """Whether a token lets its user in, as a bearer's and at the login."""
    status, _ = await admin.call("GET", "/admin/v1/status", Authorization=f"Bearer {token}")
    port = admin.broker.ports.admin_port
    async with admin.session.post(
        f"http://127.0.0.1:{port}/login", json={"token": token}
    ) as answer:
        assert answer.status == status
        assert (COOKIE in answer.cookies) == (status == 200)
    assert status in (200, 401)
    return status == 200


async def session(admin: Admin, token: str) -> dict[str, str]:
    """Log in with a token; return what the page's calls show."""
    port = admin.broker.ports.admin_port
    async with admin.session.post(
        f"http://127.0.0.1:{port}/login", json={"token": token}
    ) as answer:
        assert answer.status == 200
        csrf = (await answer.json())["csrf"]
        return {"Cookie": f"{COOKIE}={answer.cookies[COOKIE].value}", CSRF: csrf}


def pass_time(admin: Admin, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Have the broker's clock be so much later."""
    clock = admin.broker.clock
    now_ms = clock.epoch_ms() + 1000 * seconds
    monkeypatch.setattr(type(clock), "epoch_ms", lambda _: now_ms)


async def test_a_token_follows_another_that_goes_on_to_count(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await make(admin, note="of somebody else")
    first = await make(admin, note="ours", expiresSeconds=3600, former="")
    lost = await make(admin, note="ours", expiresSeconds=3600, former=first["number"])
    second = await make(admin, note="ours", expiresSeconds=7200, former=first["number"])
    assert not await counts(admin, lost["token"]), "its maker never read the answer"
    for token in (first, second, other):
        assert await counts(admin, token["token"])
    _, shown = await admin.call("GET", "/admin/v1/users/ann", **ROOT)
    ends = {each["number"]: each["expires"] for each in shown["tokens"]}
    assert ends[first["number"]] == first["expires"], "unless it is told otherwise"
    third = await make(
        admin, note="ours", expiresSeconds=7200, former=second["number"], formerSeconds=60
    )
    assert not await counts(admin, first["token"])
    assert await counts(admin, second["token"])
    pass_time(admin, monkeypatch, 61)
    assert not await counts(admin, second["token"])
    assert await counts(admin, third["token"])
    assert await counts(admin, other["token"])


@pytest.mark.parametrize(
    ("ends_ms", "until_ms", "then_ms"), [(0, 0, 0), (0, 5, 5), (5, 0, 5), (5, 9, 5), (9, 5, 5)]
)
def test_a_former_token_never_lasts_longer_than_it_would(
    monkeypatch: pytest.MonkeyPatch, ends_ms: int, until_ms: int, then_ms: int
) -> None:
    monkeypatch.setattr(users, "NOTE_SIZE_MAX", 10)
    ann, _ = new_token(User(name="ann"), expires_ms=ends_ms, note="n" * 15)
    left = ann.with_former_token(ann.tokens[0].number, "n" * 15, until_ms=until_ms)
    assert [token.expires_ms for token in left.tokens] == [then_ms]
    assert ann.with_former_token("none", "n" * 15, until_ms=until_ms).tokens == ()
    assert ann.with_former_token("none", "other", until_ms=until_ms).tokens == ann.tokens


async def test_what_is_said_of_a_former_token_is_checked(admin: Admin) -> None:
    for body in ({"former": 5}, {"former": "", "formerSeconds": -1}, {"former": "a\nb"}):
        status, answer = await admin.call("POST", TOKENS, body, **ROOT)
        assert (status, answer["error"]) == (400, "bad_request")
    _, shown = await admin.call("GET", "/admin/v1/users/ann", **ROOT)
    assert shown["tokens"] == []


async def test_no_token_that_is_not_one_lets_anybody_in(
    admin: Admin, config: BrokerConfig, tmp_path: Path
) -> None:
    """One of another cluster, of another user, with a part missing or another one."""
    made = await make(admin)
    mark, name, number, secret = made["token"].split(".")
    await admin.call("PUT", "/admin/v1/users/bob", {"super": True}, **ROOT)
    (tmp_path / "foreign").mkdir()
    base = broker_config(tmp_path / "foreign")
    away = Broker(replace(base, acl=config.acl, store=config.store))
    await away.start()
    try:
        foreign = Admin(admin.session, away)
        await foreign.call("PUT", "/admin/v1/users/ann", {"super": True}, **ROOT)
        theirs = (await make(foreign))["token"]
        assert await counts(foreign, theirs)
        assert not await counts(foreign, made["token"])
    finally:
        await away.stop()
    wrong = [
        theirs,
        f"{mark}.{name}.{number}.{theirs.rpartition('.')[2]}",
        f"{mark}.bob.{number}.{secret}",
        f"{mark}.{name}.{number}",
        f"{mark}.{name}..{secret}",
        f"{name}.{number}.{secret}",
        f"{mark}.{name}.{number[:-1]}.{secret}",
        secret,
        f"{made['token']}=",
        made["token"].upper(),
        "imt...",
        "",
        f"{mark}.{name}.{number}.{secret[:-1]}\N{FULLWIDTH DIGIT ONE}",
    ]
    wrong += [made["token"][:size] for size in range(1, len(made["token"]), 7)]
    for token in wrong:
        assert not await counts(admin, token), token
    assert await counts(admin, made["token"])


async def test_a_token_ends_with_its_user_and_nobody_of_that_name_has_it(admin: Admin) -> None:
    token = (await make(admin))["token"]
    await admin.call("PUT", "/admin/v1/users/ann", {"enabled": False}, **ROOT)
    assert not await counts(admin, token)
    await admin.call("PUT", "/admin/v1/users/ann", {"enabled": True}, **ROOT)
    assert await counts(admin, token)
    await admin.call("DELETE", "/admin/v1/users/ann", **ROOT)
    await admin.call("PUT", "/admin/v1/users/ann", {"super": True}, **ROOT)
    assert not await counts(admin, token)


async def test_a_session_ends_with_the_token_that_it_was_opened_with(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await make(admin, expiresSeconds=3600), await make(admin, expiresSeconds=60)
    one, two = [await session(admin, made["token"]) for made in (first, second)]
    for sent in (one, two):
        status, _ = await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1}, **sent)
        assert status in (200, 201)
        status, _ = await admin.call("PUT", "/admin/v1/topics/T", {}, Cookie=sent["Cookie"])
        assert status == 403, "without what pages show"
    name, ends, number, proof = one["Cookie"].partition("=")[2].split("|")
    assert int(ends) == first["expires"], "no later than the token"
    for forged in (
        f"{name}|{int(ends) + 1}|{number}|{proof}",
        f"{name}|{ends}|{second['number']}|{proof}",
        f"{name}|{ends}|{proof}",
        f"{name}|{ends}||{proof}",
        f"{name}|{ends}|{number}|",
    ):
        status, _ = await admin.call("GET", "/admin/v1/status", Cookie=f"{COOKIE}={forged}")
        assert status == 401, forged
    await admin.call("DELETE", f"{TOKENS}/{first['number']}", **ROOT)
    assert (await admin.call("GET", "/admin/v1/status", **one))[0] == 401, "revoked"
    assert (await admin.call("GET", "/admin/v1/status", **two))[0] == 200
    pass_time(admin, monkeypatch, 61)
    assert (await admin.call("GET", "/admin/v1/status", **two))[0] == 401, "ended"


async def test_a_session_ends_when_its_token_is_to_end_earlier(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await make(admin, note="ours", expiresSeconds=3600)
    sent = await session(admin, made["token"])
    await make(admin, note="ours", former=made["number"], formerSeconds=60)
    assert (await admin.call("GET", "/admin/v1/status", **sent))[0] == 200
    pass_time(admin, monkeypatch, 61)
    assert (await admin.call("GET", "/admin/v1/status", **sent))[0] == 401


async def test_a_repeated_call_is_not_told_the_token_again(admin: Admin) -> None:
    """Answers of changing calls are kept for who repeats them; one with a secret is not."""
    key = {"Idempotency-Key": "once"}
    _, first = await admin.call("POST", TOKENS, {}, **ROOT, **key)
    _, again = await admin.call("POST", TOKENS, {}, **ROOT, **key)
    assert first["token"] != again["token"]


async def test_refused_logins_tell_nothing_of_what_was_sent(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await make(admin)
    await session(admin, made["token"])
    assert not await counts(admin, made["token"][:-1])
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert f"login user=ann from 127.0.0.1 token={made['number']}" in told
    assert "login refused by token from 127.0.0.1" in told
    assert made["token"].rpartition(".")[2][:-1] not in told


async def test_ended_tokens_make_room(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "TOKENS_MAX", 2)
    for _ in range(2):
        await make(admin, expiresSeconds=60)
    assert (await admin.call("POST", TOKENS, {}, **ROOT))[0] == 400
    pass_time(admin, monkeypatch, 61)
    await make(admin)


async def test_bytes_that_are_no_text_are_a_wrong_token(admin: Admin) -> None:
    """Not a failure of the broker, which would leave a trace in its log for each."""
    number = (await make(admin))["number"]
    for secret in (b"\xff", "\N{SNOWMAN}".encode()):
        port = admin.broker.ports.admin_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET /admin/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Authorization: Bearer imt.ann.%b.%b\r\n\r\n" % (number.encode(), secret)
        )
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 401 "), answer
        writer.close()
