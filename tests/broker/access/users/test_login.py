"""Logins in turn, what signs their sessions, and the token that everything begins with."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.admin import login
from imago_broker.admin.calls import identity
from imago_broker.app import Broker
from imago_broker.app.access import check_token
from imago_broker.errors import ExitCode, FatalError
from imago_broker.model.access.users import User, hash_of
from imago_broker.service.access.access_edits import Actor

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.config import BrokerConfig

BY = Actor("the tests", "nowhere")


async def _log_in(broker: Broker, password: str, address: str = "127.0.0.1") -> tuple[int, str]:
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    url = f"http://127.0.0.1:{broker.ports.admin_port}/login"
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url, json={"user": "ann", "password": password}) as answer,
    ):
        return answer.status, answer.headers.get("Retry-After", "")


async def test_logins_beyond_the_queue_are_told_to_come_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.core.access.put_user(User(name="ann", hashed=hash_of("password", b"salt")), BY)
    monkeypatch.setattr(login, "OF_ADDRESS_MAX", 2)
    monkeypatch.setattr(login, "WAITING_MAX", 3)
    go = asyncio.Event()
    loop = asyncio.get_running_loop()
    compare = User.has_password

    def slowly(user: User, password: str) -> bool:
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(50)
        return compare(user, password)

    monkeypatch.setattr(User, "has_password", slowly)
    many = [asyncio.create_task(_log_in(broker, "password")) for _ in range(20)]
    done: set[asyncio.Task[tuple[int, str]]] = set()
    while len(done) < 18:
        done, _ = await asyncio.wait(many, timeout=0.05)
    assert {task.result() for task in done} == {(429, str(login.RETRY_SECONDS))}
    other = asyncio.create_task(_log_in(broker, "password", "127.0.0.2"))
    runner = broker.ports.admin._runner
    assert runner is not None
    queue = runner.app[login.LOGINS]
    async with asyncio.timeout(50):
        while queue._waiting.total() < 3:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.01)
    assert not other.done(), "another address has its place"
    assert await _log_in(broker, "password", "127.0.0.3") == (429, "1"), "the queue is full"
    go.set()
    assert [task.result() for task in await _all(many) if task not in done] == [(200, "")] * 2
    assert await other == (200, "")
    assert await _log_in(broker, "passwore") == (401, ""), "places are given back"


async def _all(tasks: list[asyncio.Task[tuple[int, str]]]) -> list[asyncio.Task[tuple[int, str]]]:
    async with asyncio.timeout(50):
        await asyncio.wait(tasks)
    return tasks


async def test_who_has_logged_out_is_nobody(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the cookie; the user's other sessions go on."""
    monkeypatch.setattr(identity, "ENDED_MAX", 2)
    password = {"user": "ann", "password": "password"}
    user = User(name="ann", hashed=hash_of("password", b"salt"), is_super=True)
    broker.core.access.put_user(user, BY)
    url = f"http://127.0.0.1:{broker.ports.admin_port}"

    async def asks(session: aiohttp.ClientSession, cookie: str, path: str = "users") -> int:
        headers = {"Cookie": f"{identity.COOKIE}={cookie}"}
        async with session.get(f"{url}/admin/v1/{path}", headers=headers) as answer:
            return answer.status

    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        cookies = []
        for _ in range(2):
            async with session.post(f"{url}/login", json=password) as answer:
                cookies.append(answer.cookies[identity.COOKIE].value)
            await asyncio.sleep(0.002)  # sessions of one millisecond are one
        assert [await asks(session, each) for each in cookies] == [200, 200]
        headers = {"Cookie": f"{identity.COOKIE}={cookies[0]}"}
        async with session.post(f"{url}/logout", headers=headers) as answer:
            assert answer.status == 200
        assert [await asks(session, each) for each in cookies] == [401, 200]
    ended = identity.EndedSessions()
    for number in range(5):
        ended.add(str(number))
    assert [str(number) in ended for number in range(5)] == [False] * 3 + [True] * 2


async def test_no_session_without_what_signs_it(broker: Broker, tmp_path: Path) -> None:
    broker.core.access.put_user(User(name="ann", hashed=hash_of("password", b"salt")), BY)
    assert (await _log_in(broker, "password"))[0] == 200
    (tmp_path / "token").unlink()
    assert (await _log_in(broker, "password"))[0] == 503


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), (b"", "is empty"), (b" \n", "is empty"), (b"\xff", "is no text")],
)
@pytest.mark.parametrize("closed", [True, False])
async def test_no_start_without_the_administrators_token(
    config: BrokerConfig, tmp_path: Path, content: bytes | None, words: str, *, closed: bool
) -> None:
    file = tmp_path / "token"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    acl = replace(config.acl, enabled=closed)
    broker = Broker(replace(config, acl=acl))
    wanted = rf"admin\.token_file: {re.escape(str(file))} {words}.*write a secret into it"
    with pytest.raises(FatalError, match=wanted) as raised:
        await broker.start()
    await broker.stop()
    assert raised.value.exit_code == ExitCode.USAGE
    assert ("leave admin.token_file empty" in str(raised.value)) is not closed
    unnamed = replace(config.admin, token_file="")
    open_one = Broker(replace(config, acl=replace(acl, enabled=False), admin=unnamed))
    await open_one.start()
    await open_one.stop()


@pytest.mark.parametrize(("size", "warned"), [(15, True), (16, False)])
def test_a_token_that_may_be_guessed_is_a_warning(
    config: BrokerConfig,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    size: int,
    *,
    warned: bool,
) -> None:
    (tmp_path / "token").write_text("k" * size + "\n")
    check_token(config)
    assert ("admin_token_short" in caplog.text) is warned
    assert "kkk" not in caplog.text


async def test_a_login_is_small(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.core.access.put_user(User(name="ann", hashed=hash_of("password", b"salt")), BY)
    monkeypatch.setattr(login, "BODY_BYTES_MAX", 64)
    assert (await _log_in(broker, "password"))[0] == 200
    assert (await _log_in(broker, "password" * 8))[0] == 413
