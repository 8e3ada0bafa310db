"""Static topics on two shards with access control: who may have what other brokers have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.server import broker_calls
from imago_broker.server.introductions import Introductions
from imago_broker.service.access.access_edits import Actor
from imago_testing.clusters.shard_pair import running_pair
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.signing import call_signed
from imago_testing.peers.static_topics import HERE, Runs, fields, mapping
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")
MOVED: Runs = (*HERE, (1, "shard-1", 0, 1000))
USERS = (
    User(name="root", secret="secret", is_super=True),
    User(name="ann", secret="secret"),
    User(name="near", secret="secret", white_addresses="127.0.0.1"),
    User(name="eve", secret="secret"),
)
RULES = [
    AccessRule(Resource(kind, name), frozenset({Operation.SUBSCRIBE}))
    for kind, name in ((AccessKind.TOPIC, "S"), (AccessKind.GROUP, "g"))
]
GROUP = {"queueId": 0, "consumerGroup": "g", "topic": "S"}
OF_EARLIER_RUNS: tuple[tuple[int, dict[str, object]], ...] = (
    (11, pull_ext("S", consumerGroup="g")),
    (Code.LITE_PULL_MESSAGE, pull_ext("S", consumerGroup="g")),
    (Code.GET_MIN_OFFSET, GROUP),
    (Code.GET_EARLIEST_MSG_STORETIME, GROUP),
    (Code.SEARCH_OFFSET_BY_TIMESTAMP, {**GROUP, "timestamp": 0}),
    (Code.UPDATE_CONSUMER_OFFSET, {**GROUP, "commitOffset": 1}),
    (Code.QUERY_CONSUMER_OFFSET, GROUP),
)
"""Requests for which the broker that has the queue now asks the one that had it."""


async def test_with_access_control_brokers_ask_each_other(tmp_path: Path) -> None:
    """The one that the client asks decides; the other believes brokers of the cluster alone."""
    async with running_pair(tmp_path, closed=True) as pair:
        peers = []
        for number, admin in enumerate((pair.one, pair.two)):
            access = admin.broker.core.access
            for account in USERS:
                access.put_account(account, RULES if account.name == "ann" else (), BY)
            peers.append(await RemotingPeer.connect(admin.broker.rocketmq_port))
            body = mapping(f"shard-{number}", {0: MOVED}, epoch=2)
            code = Code.UPDATE_AND_CREATE_STATIC_TOPIC
            made = await as_user(peers[number], "root", code, fields(2, "S"), body)
            assert made.code == ResponseCode.SUCCESS, made.remark
        zero, one = peers
        first = {**send_ext("S", 1), "lo": "false"}
        assert (await as_user(zero, "root", 310, first, b"a")).code == ResponseCode.SUCCESS
        for user in ("ann", "near", "root"):
            answers = [await as_user(one, user, *asked) for asked in OF_EARLIER_RUNS]
            assert [said.code for said in answers] == [0] * 7, (user, answers[0].remark)
            for pulled in answers[:2]:
                assert [m.body for m in decode_messages(pulled.body)] == [b"a"]
            assert answers[2].ext["offset"] == "0"
            assert answers[-1].ext["offset"] == "1"
        for user in ("eve", ""):
            answers = [await as_user(one, user, *asked) for asked in OF_EARLIER_RUNS]
            assert {said.code for said in answers} == {ResponseCode.NO_PERMISSION}
            asked = {**pull_ext("S", queueId=1), "lo": "false", "bname": "shard-0"}
            direct = await as_user(zero, user, 11, asked)
            assert direct.code == ResponseCode.NO_PERMISSION
        for peer in peers:
            await peer.close()


async def as_user(
    peer: RemotingPeer, user: str, code: int, ext: Mapping[str, object], body: bytes = b""
) -> RemotingCommand:
    if not user:
        return await peer.call(code, ext, body)
    secret = "other" if user == "near" else "secret"  # its address is enough
    return await call_signed(peer, code, ext, body, user=user, secret=secret)


async def test_a_broker_without_access_control_takes_no_introductions(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        others = pair.two.broker.rocketmq.broker.others
        assert isinstance(others, broker_calls.MasterCalls)
        others._introductions = Introductions(
            key=lambda: "sesame", epoch_ms=pair.two.broker.clock.epoch_ms, random_bytes=os.urandom
        )
        answer = await others.ask("shard-0", Code.GET_MIN_OFFSET, {"topic": "S", "queueId": "0"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "is acl.enabled the same on all brokers?" in (answer.remark or "")
