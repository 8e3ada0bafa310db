"""Who is named in the audit log where one broker passes a call on to another."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User, new_token
from imago_broker.service.access.access_drafts import version_of
from imago_broker.service.access.access_edits import Actor
from imago_broker.shard_work.calls import FORWARDED
from imago_broker.shard_work.signing import CALLER, SCHEME, caller_text, signature, told_caller
from imago_testing.clusters.shard_pair import eventually, running_pair
from imago_testing.peers.admin import TOKEN

if TYPE_CHECKING:
    from pathlib import Path

BY = Actor("the tests", "nowhere")


async def test_calls_that_are_passed_on_are_their_callers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = [AccessRule(Resource(AccessKind.TOPIC, "", prefix=True), frozenset(Operation))]
    ann, token = new_token(User(name="ann", secret="password"), expires_ms=0, note="")
    async with running_pair(tmp_path, closed=True) as pair:
        one, two = (admin.broker.core.access for admin in (pair.one, pair.two))
        one.put_account(ann, rules, BY)
        await eventually(lambda: version_of(one, "ann") == version_of(two, "ann"))
        caplog.set_level(logging.INFO, "imago.audit")
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.7", 0))
        url = f"http://127.0.0.1:{pair.one.broker.ports.admin_port}/admin/v1/topics/orders"
        headers = {"Authorization": f"Bearer {token}", CALLER: "root 10.0.0.1 x"}
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.put(url, json={"queues": 1}, headers=headers) as answer,
        ):
            assert answer.status == 201, await answer.text()
        own = pair.two.broker.coordinator.registered
        assert own is not None
        forged = {
            FORWARDED: "1",
            "Host": f"{own.host}:{own.admin}",
            CALLER: f"{caller_text('eve', '10.0.0.1', '')} {'0' * 64}",
        }
        path, now_ms = "/admin/v1/topics/other", pair.two.broker.clock.epoch_ms()
        signed = signature(TOKEN, now_ms, "DELETE", forged["Host"], path, b"")
        forged["Authorization"] = f"{SCHEME} {now_ms} {signed}"
        async with pair.two.session.delete(
            f"http://127.0.0.1:{own.admin}{path}", headers=forged
        ) as answer:
            assert answer.status == 404
    said = [record.getMessage() for record in caplog.records if record.name == "imago.audit"]
    assert [line for line in said if " /admin/v1/topics/" in line] == [
        "PUT /admin/v1/topics/orders by ann from 127.0.0.7: 201 key=-",
        "PUT /admin/v1/topics/orders by ann from 127.0.0.7: 201 key=-",
        "DELETE /admin/v1/topics/other by (broker) from 127.0.0.1: 404 key=-",
    ]


@pytest.mark.parametrize("name", ["ann", "(admin token)", "a b", "\u00e4"])
def test_callers_are_believed_to_brokers_alone(name: str) -> None:
    from imago_broker.shard_work.signing import caller_hash

    told = caller_text(name, "2001:db8::1", "1.0,-")
    whole = f"{told} {caller_hash('token', 'signed 1', told)}"
    assert told_caller(whole, "token", "signed 1") == (name, "2001:db8::1", "1.0,-")
    assert told_caller(whole, "token", "signed 2") is None, "of another call"
    assert told_caller(whole, "other", "signed 1") is None
    assert told_caller(whole.replace("2001", "2002"), "token", "signed 1") is None
    for wrong in ("", "x", told, f" {told}", f"{told} \udcff"):
        assert told_caller(wrong, "token", "signed 1") is None
