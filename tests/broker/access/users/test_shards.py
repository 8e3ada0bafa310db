"""Users reach every shard, whoever is told of them first."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.model.access.users import User
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.shard_work import access_spreading
from imago_broker.shard_work.access_spreading import AccessSpreader, batches
from imago_log.errors import DiskFullError
from imago_testing.clusters.shard_pair import eventually, running_pair
from imago_testing.peers.admin import TOKEN
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_testing.peers.admin import Admin

BY = Actor("the tests", "nowhere")
ROUNDS = 12
ANN = {"username": "ann", "password": "password", "userType": "Normal"}
POLICY = {
    "subject": "User:ann",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [{"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"}],
        }
    ],
}
RULES = [{"resource": {"type": "Topic", "name": "orders"}, "operations": ["publish"]}]


@pytest.mark.parametrize("batch_bytes", [1, 256 << 10])
async def test_users_reach_the_other_shard(
    tmp_path: Path, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_spreading, "BATCH_BYTES_MAX", batch_bytes)
    monkeypatch.setattr(access_spreading, "LOOK_SECONDS", 0.05)
    async with running_pair(tmp_path) as pair:
        one, two = (admin.broker.core.access for admin in (pair.one, pair.two))
        body = {"password": "password", "rules": RULES}
        status, answer = await pair.one.call("PUT", "/admin/v1/users/ann", body)
        assert (status, answer["shards"]) == (200, {"shard-0": "ok", "shard-1": "ok"})
        assert (two.users, two.rules) == (one.users, one.rules)
        # By a way that spreads nothing itself, as the codes of RocketMQ's tools are.
        two.put_user(User(name="bob", secret="password"), BY)
        one.put_user(User(name="eve", secret="password"), BY)
        await eventually(lambda: one.digest() == two.digest())
        assert set(one.users) == {"ann", "bob", "eve"}
        status, _ = await pair.two.call("DELETE", "/admin/v1/users/ann")
        assert status == 200
        assert "ann" not in one.users
        assert one.rules == {}


async def changed(peer: RemotingPeer, code: int, body: object, **ext: str) -> tuple[int, str]:
    answer = await peer.call(code, ext, json.dumps(body).encode() if body else b"")
    return answer.code, answer.remark or ""


async def test_a_store_that_takes_nothing_is_said_so_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_spreading, "LOOK_SECONDS", 0.05)

    def full(*_: object) -> None:
        raise DiskFullError(used_ratio=0.97, limit_ratio=0.95)

    async with running_pair(tmp_path) as pair:
        one, two = (admin.broker.core.access for admin in (pair.one, pair.two))
        peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
        with monkeypatch.context() as patch:
            patch.setattr(one, "merge", full)
            code, remark = await changed(peer, Code.AUTH_CREATE_USER, ANN, username="ann")
            assert code == 1
            assert "disk 97.0% used" in remark
        await eventually(lambda: "ann" in two.users)
        assert one.digest() == two.digest()
        await peer.close()


async def test_a_tools_change_is_answered_once_all_shards_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pair(tmp_path) as pair:
        one, two = (admin.broker.core.access for admin in (pair.one, pair.two))
        peer, may_go = await RemotingPeer.connect(pair.one.broker.rocketmq_port), asyncio.Event()
        spread = AccessSpreader.spread

        async def late(spreader: AccessSpreader) -> dict[str, str]:
            await may_go.wait()
            return await spread(spreader)

        monkeypatch.setattr(AccessSpreader, "spread", late)
        body = json.dumps(ANN).encode()
        made = peer.send(Code.AUTH_CREATE_USER, {"username": "ann"}, body)
        await eventually(lambda: "ann" in one.users)
        meanwhile = await peer.call(Code.GET_BROKER_CONFIG)
        assert (meanwhile.code, peer.unread) == (0, [])
        may_go.set()
        assert (await peer.answer(made)).code == 0
        assert "ann" in two.users
        await pair.two.broker.ports.admin.stop()
        code, remark = await changed(peer, Code.AUTH_DELETE_USER, None, username="ann")
        assert code == 1
        assert remark.startswith("Done here, but not on every shard yet: shard-1: ")
        assert remark.endswith("It is tried again by itself.")
        assert "ann" not in one.users
        await peer.close()


async def test_mqadmin_asks_all_masters_for_the_same_one_after_the_other(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        one, two = (admin.broker.core.access for admin in (pair.one, pair.two))
        ports = [each.broker.rocketmq_port for each in (pair.one, pair.two)]
        peers = [await RemotingPeer.connect(port) for port in ports]
        account = {"accessKey": "account-bob", "secretKey": "12345678"}
        for code, body, ext in (
            (Code.AUTH_CREATE_USER, ANN, {"username": "ann"}),
            (Code.AUTH_CREATE_ACL, POLICY, {"subject": "User:ann"}),
            (Code.AUTH_DELETE_ACL, None, {"subject": "User:ann"}),
            (Code.UPDATE_AND_CREATE_ACL_CONFIG, None, account),
            (Code.DELETE_ACL_CONFIG, None, {"accessKey": "account-bob"}),
        ):
            for peer in peers:
                assert await changed(peer, int(code), body, **ext) == (0, "")
                assert two.digest() == one.digest()
        existed = (16, "The user is existed")
        create = int(Code.AUTH_CREATE_USER)
        assert await changed(peers[0], create, ANN, username="ann") == existed
        different = {**ANN, "password": "another-one"}
        assert await changed(peers[1], create, different, username="ann") == existed
        for peer in peers:
            await peer.close()


async def test_a_token_is_told_though_a_shard_does_not_have_it_yet(tmp_path: Path) -> None:
    """It is shown once: who is told nothing can only have another made."""
    async with running_pair(tmp_path) as pair:
        assert (await pair.one.call("PUT", "/admin/v1/users/ann", {}))[0] == 200
        await pair.two.broker.ports.admin.stop()
        status, made = await pair.one.call("POST", "/admin/v1/users/ann/tokens", {})
        assert status == 200, made
        assert made["shards"]["shard-0"] == "ok"
        assert made["shards"]["shard-1"] != "ok"
        found = pair.one.broker.core.access.users["ann"].tokens
        assert [token.number for token in found] == [made["number"]]
        assert made["token"].split(".")[2] == made["number"]
        status, error = await pair.one.call("PUT", "/admin/v1/users/ann", {"super": True})
        assert (status, error["error"]) == (502, "shard_failed"), "this may be repeated"


async def test_a_token_that_a_former_leader_has_made_is_told_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pair(tmp_path) as pair:
        assert (await pair.one.call("PUT", "/admin/v1/users/ann", {}))[0] == 200
        store, asked = pair.one.broker.store, list[object]()

        def refused(done: Callable[..., None], token: object) -> None:
            asked.append(token)
            if len(asked) == 1:
                done(token, PutStatus.OK, ())
                return
            store._status.follow()
            done(token, PutStatus.NOT_WRITABLE, ())

        acknowledgements = pair.one.broker.core.messages.acknowledgements
        monkeypatch.setattr(acknowledgements, "when_replicated", refused)
        status, error = await pair.one.call("POST", "/admin/v1/users/ann/tokens", {})
        assert (status, error["error"]) == (503, "not_settled")


async def test_of_changes_through_two_shards_at_once_none_is_lost_that_was_confirmed(
    tmp_path: Path,
) -> None:
    """A revoked token counts nowhere, one that was told everywhere."""
    async with running_pair(tmp_path, closed=True) as pair:
        root = {"Authorization": f"Bearer {TOKEN}"}
        ann = "/admin/v1/users/ann"
        assert (await pair.one.call("PUT", ann, {"super": True}, **root))[0] == 200
        _, old = await pair.one.call("POST", f"{ann}/tokens", {}, **root)
        for _ in range(ROUNDS):
            revoked, made = await asyncio.gather(
                pair.two.call("DELETE", f"{ann}/tokens/{old['number']}", **root),
                pair.one.call("POST", f"{ann}/tokens", {}, **root),
            )
            for one in (pair.one, pair.two):
                status = await _asked_with(one, old)
                assert revoked[0] != 200 or status == 401
                assert made[0] != 200 or await _asked_with(one, made[1]) == 200
            if made[0] != 200:
                assert made[1]["error"] == "changed_meanwhile"
                made = await pair.one.call("POST", f"{ann}/tokens", {}, **root)
            old = made[1]


@pytest.mark.parametrize(
    "body", [{"enabled": False}, {"password": "another-one"}, {"rules": RULES}]
)
async def test_of_changes_of_one_user_at_once_the_lost_one_is_not_confirmed(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    async with running_pair(tmp_path) as pair:
        one = pair.one.broker.core.access
        for _ in range(ROUNDS):
            await pair.one.call("PUT", "/admin/v1/users/ann", {"enabled": True, "rules": []})
            answers = await asyncio.gather(
                pair.two.call("PUT", "/admin/v1/users/ann", body),
                pair.one.call("PUT", "/admin/v1/users/ann", {"super": True}),
            )
            status, said = answers[0]
            assert status == 200 or said["error"] == "changed_meanwhile"
            if status == 200:
                assert one.users["ann"].enabled == body.get("enabled", True)
                assert "rules" not in body or one.rules.get("ann")
                assert one.users["ann"].secret == body.get("password", one.users["ann"].secret)


async def _asked_with(admin: Admin, made: dict[str, Any]) -> int:
    bearer = {"Authorization": f"Bearer {made['token']}"}
    return (await admin.call("GET", "/admin/v1/status", **bearer))[0]


def test_records_are_sent_in_parts() -> None:
    records = [["access-user", f"user{n}", [n, 0], None] for n in range(10)]
    for size in (1, 50, 100, 10_000):
        parts = list(batches(records, size))
        assert [record for part in parts for record in part] == records
        assert all(len(part) == 1 or size > 40 for part in parts)
    assert list(batches([], 1)) == []
