"""MetaQ's transactions over the admin interface: what is shown, what a person decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from imago_testing.peers.metaq import MetaqPeer, metaq_peer, value_body
from imago_wire.text.message import parse_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker
    from imago_testing.peers.admin import Admin

PATH = "/admin/v1/metaq/transactions"
XA = "XID:100:676c:6271:uq/%a"
CODES = {"commit": 7, "rollback": 6, "complete": 8}
WORDS = {"commit": "committed", "rollback": "rolled back", "complete": "completed"}


@pytest.fixture
async def peer(broker: Broker, admin: Admin) -> AsyncIterator[MetaqPeer]:
    assert (await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1}))[0] == 201
    async with metaq_peer(broker.metaq_port) as connected:
        yield connected


async def do(peer: MetaqPeer, kind: str, key: str = XA) -> bytes:
    return await peer.ask(f"transaction {key} s1 {kind} 9\r\n".encode())


async def prepare(peer: MetaqPeer, key: str = XA) -> None:
    await do(peer, "BEGIN", key)
    for body in (b"one", b"two"):
        await peer.ask(b"put orders 0 %d 0 -1 %b 9\r\n%b" % (len(body), key.encode(), body))
    assert await do(peer, "PREPARE", key) == b"result 200 1 9\r\n0"


async def stored(peer: MetaqPeer) -> list[bytes]:
    answer = await peer.get("orders", 0, 0)
    return [] if answer.startswith(b"result") else [e.body for e in parse_block(value_body(answer))]


def decision(key: str, what: str) -> str:
    return f"{PATH}/{quote(key, safe='')}/{what}"


async def test_transactions_are_listed(peer: MetaqPeer, admin: Admin) -> None:
    await do(peer, "BEGIN", "TX:host-1:1")
    await prepare(peer)
    status, found = await admin.call("GET", PATH)
    local, xa = found["items"]
    assert (status, found["next"]) == (200, None)
    assert (local["key"], local["kind"], local["state"]) == ("TX:host-1:1", "local", "open")
    assert (xa["key"], xa["state"], xa["messages"], xa["name"]) == (XA, "prepared", 2, "uq/%a")
    assert (xa["decided"], xa["connections"], xa["bytes"]) == (None, 1, 0)


@pytest.mark.parametrize("what", CODES)
async def test_decision_of_a_person_is_told_until_it_is_forgotten(
    peer: MetaqPeer, admin: Admin, what: str
) -> None:
    await prepare(peer)
    for _ in range(2):  # it counts once
        answer = await admin.call("POST", decision(XA, what), {})
        assert answer == (200, {"key": XA, "decision": what})
    assert await stored(peer) == ([b"one", b"two"] if what == "commit" else [])
    text = f"XA transaction '{XA}' has been heuristically {WORDS[what]}."
    error = f"XAException:code={CODES[what]},msg={text}"
    for kind in ("COMMIT_TWO_PHASE", "ROLLBACK", "PREPARE", "BEGIN"):
        assert (await do(peer, kind)).endswith(b"\r\n" + error.encode())
    assert (await do(peer, "RECOVER", "null")).endswith(b"\r\n" + XA.encode())
    _, found = await admin.call("GET", PATH)
    assert [(e["state"], e["decided"]) for e in found["items"]] == [("decided", WORDS[what])]
    other = next(each for each in CODES if each != what)
    status, refused = await admin.call("POST", decision(XA, other), {})
    assert (status, refused["error"]) == (409, "decided")
    if what == "commit":
        assert await do(peer, "FORGET") == b"result 200 0 9\r\n"
    else:
        assert (await admin.call("POST", decision(XA, "forget"), {}))[0] == 200
    assert await do(peer, "RECOVER", "null") == b"result 200 0 9\r\n"
    assert await do(peer, "BEGIN") == b"result 200 0 9\r\n"


async def test_what_is_not_prepared_is_not_decided(peer: MetaqPeer, admin: Admin) -> None:
    await do(peer, "BEGIN")
    status, refused = await admin.call("POST", decision(XA, "commit"), {})
    assert (status, refused["error"]) == (409, "not_prepared")
    status, refused = await admin.call("POST", decision("XID:1:aa:bb:q", "rollback"), {})
    assert (status, refused["error"]) == (404, "metaq/transaction_not_found")
    assert (await admin.call("POST", decision(XA, "explode"), {}))[0] == 404
    assert (await admin.call("POST", decision(XA, "commit"), {"x": 1}))[0] == 400


async def test_decisions_keep_nobody_from_beginning(
    peer: MetaqPeer, admin: Admin, broker: Broker
) -> None:
    settings = broker.core.metaq_settings
    settings.current = replace(settings.current, transactions_max=2)
    keys = [f"XID:100:676c:626{n}:uq" for n in range(3)]
    for key in keys[:2]:
        await prepare(peer, key)
        assert (await admin.call("POST", decision(key, "rollback"), {}))[0] == 200
    await prepare(peer, keys[2])
    assert await do(peer, "BEGIN", "TX:host-1:1") == b"result 200 0 9\r\n"
    assert b"metaq.transactions_max" in await do(peer, "BEGIN", "TX:host-1:2")
    status, refused = await admin.call("POST", decision(keys[2], "commit"), {})
    assert (status, refused["error"]) == (409, "too_many_decisions")
    assert (await admin.call("POST", decision(keys[0], "rollback"), {}))[0] == 200, "it stands"
    assert (await admin.call("POST", decision(keys[0], "forget"), {}))[0] == 200
    assert (await admin.call("POST", decision(keys[2], "commit"), {}))[0] == 200
    assert await stored(peer) == [b"one", b"two"]
