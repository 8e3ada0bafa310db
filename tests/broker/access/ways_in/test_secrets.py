"""No secret is written down: not in logs, nodes of the registry, status, metrics, configuration."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import aiohttp

from imago_broker.admin.calls.identity import COOKIE
from imago_broker.admin.routes import ROUTES
from imago_testing.clusters.shard_pair import running_pair
from imago_testing.peers.admin import TOKEN
from imago_testing.peers.metaq import metaq_peer
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.signing import call_signed
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from imago_testing.clusters.shard_pair import Pair

ROOT = {"Authorization": f"Bearer {TOKEN}"}
SECRETS = {
    "the admin token": TOKEN,
    "a password": "Zs1-password-of-ann",
    "the one before": "Zs2-former-of-ann",
    "a password that is hashed": "Zs3-password-of-bob",
    "a wrong password": "Zs4-wrong-of-ann",
    "a password that is refused": "Zs5\u0000",
    "an account's key": "Zs6-key-of-account",
}
"""The wrong ones too: they are nearly right, or right elsewhere."""


async def use(pair: Pair) -> dict[str, str]:
    """Do all that credentials are for, right and wrong; return the secrets that were made."""
    admin, made = pair.one, {}
    for name, body in (
        ("ann", {"password": SECRETS["the one before"], "super": True}),
        ("ann", {"password": SECRETS["a password"], "formerSeconds": 60}),
        ("bob", {"password": SECRETS["a password that is hashed"], "signs": False}),
        ("eve", {"password": SECRETS["a password that is refused"]}),
        ("../x", {"password": SECRETS["a password"]}),
        ("anonymous", {"password": SECRETS["a password"]}),
        ("ann", {"password": [SECRETS["a password"]], "signs": SECRETS["a password"]}),
    ):
        await admin.call("PUT", f"/admin/v1/users/{name.replace('/', '%2F')}", body, **ROOT)
    _, told = await admin.call("POST", "/admin/v1/users/ann/tokens", {"note": "x"}, **ROOT)
    made["a bearer token"] = told["token"].rpartition(".")[2]
    for password in (SECRETS["a password"], SECRETS["a wrong password"]):
        url = f"http://127.0.0.1:{admin.broker.ports.admin_port}/login"
        async with admin.session.post(url, json={"user": "ann", "password": password}) as answer:
            if answer.status == 200:
                made["a session"] = answer.cookies[COOKIE].value.rpartition("|")[2]
    for token in (told["token"], f"{told['token']}x", told["token"][:-5]):
        url = f"http://127.0.0.1:{admin.broker.ports.admin_port}/login"
        async with admin.session.post(url, json={"token": token}) as answer:
            if answer.status == 200:
                made["a token's session"] = answer.cookies[COOKIE].value.rpartition("|")[2]
    bearer = f"Bearer {told['token']}"
    for sent in (bearer, f"{bearer}x", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
        await admin.call("GET", "/admin/v1/status", Authorization=sent)
        await admin.call("PUT", "/admin/v1/topics/T", {"queues": 1}, Authorization=sent)
    peer = await RemotingPeer.connect(admin.broker.rocketmq_port)
    for secret in (SECRETS["a password"], SECRETS["the one before"], SECRETS["a wrong password"]):
        ext = send_ext("T")
        await call_signed(peer, Code.SEND_MESSAGE_V2, ext, b"x", user="ann", secret=secret)
        account = {"accessKey": "account", "secretKey": SECRETS["an account's key"], "admin": "no"}
        await call_signed(
            peer, Code.UPDATE_AND_CREATE_ACL_CONFIG, account, user="ann", secret=secret
        )
    await peer.close()
    async with metaq_peer(admin.broker.metaq_port) as line:
        await line.ask(f"put {SECRETS['a wrong password']} 0 1 0 1\r\nx".encode())
    return made


async def shown(pair: Pair) -> dict[str, str]:
    """Return what brokers show to who may see everything."""
    found: dict[str, str] = {}
    async with aiohttp.ClientSession() as session:
        for admin in (pair.one, pair.two):
            url = f"http://127.0.0.1:{admin.broker.ports.admin_port}"
            for method, path, _, _ in ROUTES:
                full = path.replace("{user}", "ann").replace("{topic}", "T")
                if method == "GET" and "{" not in full:
                    async with session.get(url + full, headers=ROOT) as answer:
                        found[f"{admin.broker.record().shard} {path}"] = await answer.text()
    return found


async def test_no_secret_is_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_pair(tmp_path, closed=True) as pair:
        made = await use(pair)
        places = await shown(pair)
        places["nodes"] = pair.nodes()
    assert "shard-0" in places["nodes"]
    assert set(made) == {"a bearer token", "a session", "a token's session"}
    places["logs"] = "\n".join(
        f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records
    )
    assert "user ann" in places["logs"]
    assert "ann" in places["0 /admin/v1/users"]
    # A word that a client has sent in place of a topic is shown as it is.
    assert written(SECRETS | made, places) - {("a wrong password", "logs")} == set()
    places["planted"] = f"beside {made['a session']} other words"
    assert ("a session", "planted") in written(made, places)


def written(secrets: dict[str, str], places: dict[str, str]) -> set[tuple[str, str]]:
    """Return which secret stands where."""
    return {
        (what, where)
        for what, secret in secrets.items()
        for where, text in places.items()
        if secret in text
    }
