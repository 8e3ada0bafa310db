"""Users, rules and accounts as mqadmin of both versions administers them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app import Broker
from imago_broker.model.access.access import AccessKind, Operation
from imago_broker.model.access.users import User
from imago_broker.service.access.access_edits import Actor
from imago_log.offline.dump import dump, to_json
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.signing import call_signed
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.config import BrokerConfig
    from imago_wire.remoting.command import RemotingCommand

ROOT, SECRET = "root", "secret-of-root"
BY = Actor("the tests", "nowhere")


class Tool:
    """mqadmin with the credentials of one user."""

    def __init__(self, peer: RemotingPeer, user: str, secret: str) -> None:
        self.peer, self.user, self.secret = peer, user, secret

    async def ask(self, code: int, body: Any = None, **ext: str) -> RemotingCommand:
        data = json.dumps(body).encode() if body is not None else b""
        return await call_signed(self.peer, code, ext, data, user=self.user, secret=self.secret)


@pytest.fixture
async def tool(broker: Broker) -> AsyncIterator[Tool]:
    broker.core.access.put_user(User(name=ROOT, is_super=True, secret=SECRET), BY)
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    yield Tool(peer, ROOT, SECRET)
    await peer.close()


def policy(resource: str, *actions: str, decision: str = "Allow", **more: object) -> dict[str, Any]:
    entry = {"resource": resource, "actions": actions, "decision": decision, **more}
    return {"policies": [{"policyType": "Custom", "entries": [entry]}]}


async def test_the_life_of_a_user(tool: Tool) -> None:
    made = {"username": "ann", "password": "password-1", "userType": "Normal"}
    assert (await tool.ask(Code.AUTH_CREATE_USER, made, username="ann")).code == 0
    answer = await tool.ask(Code.AUTH_CREATE_USER, made, username="ann")
    assert (answer.code, answer.remark) == (16, "The user is existed")
    shown = json.loads((await tool.ask(Code.AUTH_GET_USER, username="ann")).body)
    assert shown == {"username": "ann", "userType": "Normal", "userStatus": "enable"}
    answer = await tool.ask(Code.AUTH_UPDATE_USER, {"userStatus": "disable"}, username="ann")
    assert answer.code == 0
    ann = Tool(tool.peer, "ann", "password-1")
    assert (await ann.ask(Code.GET_BROKER_CONFIG)).remark == "User:ann is disabled."
    listed = json.loads((await tool.ask(Code.AUTH_LIST_USER, filter="an")).body)
    assert listed == [{"username": "ann", "userType": "Normal", "userStatus": "disable"}]
    assert (await tool.ask(Code.AUTH_DELETE_USER, username="ann")).code == 0
    assert (await tool.ask(Code.AUTH_DELETE_USER, username="ann")).code == 0
    gone = await tool.ask(Code.AUTH_GET_USER, username="ann")
    assert (gone.code, gone.body) == (0, b"")
    assert (await ann.ask(Code.GET_BROKER_CONFIG)).remark == "User:ann is not found."
    answer = await tool.ask(Code.AUTH_UPDATE_USER, {}, username="ann")
    assert (answer.code, answer.remark) == (16, "The user is not exist")
    answer = await tool.ask(Code.AUTH_CREATE_USER, made, username=" ")
    assert (answer.code, answer.remark) == (29, "The username is blank")


async def test_rules_of_a_user(broker: Broker, tool: Tool) -> None:
    access = broker.core.access
    subject = "User:ann"
    answer = await tool.ask(Code.AUTH_CREATE_ACL, policy("Topic:a", "Pub"), subject=subject)
    assert (answer.code, answer.remark) == (16, "The subject of User:ann is not exist.")
    access.put_user(User(name="ann", secret="password-1"), BY)
    for body in (
        policy("Topic:a*", "Pub", "Get", sourceIps=["10.0.0.0/8"]),
        policy("Topic:a*", "Sub", decision="Deny"),
        policy("Cluster:imago", "All"),
        policy("*", "List"),
    ):
        answer = await tool.ask(Code.AUTH_UPDATE_ACL, body, subject=subject)
        assert answer.code == 0, answer.remark
    shown = json.loads((await tool.ask(Code.AUTH_GET_ACL, subject=subject)).body)
    assert shown["subject"] == subject
    [told] = shown["policies"]
    assert [(e["resource"], e["actions"], e["decision"]) for e in told["entries"]] == [
        ("Topic:a*", ["Sub"], "Deny"),
        ("Cluster:imago", ["All"], "Allow"),
        ("*", ["List"], "Allow"),
    ]
    rights = access.rights_of("ann")
    assert rights.allows(Operation.ADMINISTER, AccessKind.CLUSTER, "cluster", "10.0.0.1")
    assert not rights.allows(Operation.SUBSCRIBE, AccessKind.TOPIC, "ab", "10.0.0.1")
    [listed] = json.loads(
        (await tool.ask(Code.AUTH_LIST_ACL, subjectFilter="an", resourceFilter="Topic")).body
    )
    assert len(listed["policies"][0]["entries"]) == 1
    for resource in ("Topic:a*", "*", "Cluster:imago"):
        answer = await tool.ask(Code.AUTH_DELETE_ACL, subject=subject, resource=resource)
        assert answer.code == 0
    answer = await tool.ask(Code.AUTH_DELETE_ACL, subject=subject)
    assert (answer.code, answer.remark) == (16, "The acl is not exist.")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "The policies is empty."),
        (policy("", "Pub"), "The resource is null."),
        (policy("Queue:a", "Pub"), "The resource type is null."),
        (policy("Topic:a"), "The actions is empty."),
        (policy("Topic:a", "Any"), "The actions can not be Any."),
        (policy("Topic:a", "Fly"), "The action 'Fly' is unknown."),
        (policy("Topic:a", "Pub", decision="Perhaps"), "The decision is null or illegal."),
        (policy("Topic:a", "Pub", sourceIps=["home"]), "The source ip is invalid."),
        (policy("Cluster:other", "Pub"), "The cluster is imago, not other."),
        (policy("Topic:a*b", "Pub"), "'a*b': only a whole ending is left open, as a prefix"),
    ],
)
async def test_rules_that_cannot_be(tool: Tool, body: Any, words: str) -> None:
    answer = await tool.ask(Code.AUTH_CREATE_ACL, body, subject=f"User:{ROOT}")
    assert (answer.code, answer.remark) == (16, words)


async def test_only_super_users_make_super_users(broker: Broker, tool: Tool) -> None:
    broker.core.access.put_user(User(name="ann", secret="password-1"), BY)
    body = policy("Cluster:*", "All")
    assert (await tool.ask(Code.AUTH_CREATE_ACL, body, subject="User:ann")).code == 0
    ann = Tool(tool.peer, "ann", "password-1")
    made = {"username": "eve", "password": "password-2", "userType": "Super"}
    answer = await ann.ask(Code.AUTH_CREATE_USER, made, username="eve")
    assert (answer.code, answer.remark) == (1, "The super user can only be create by super user")
    answer = await ann.ask(Code.AUTH_UPDATE_USER, {"password": "password-3"}, username=ROOT)
    assert (answer.code, answer.remark) == (1, "The super user can only be update by super user")
    answer = await ann.ask(Code.AUTH_DELETE_USER, username=ROOT)
    assert (answer.code, answer.remark) == (1, "The super user can only be delete by super user")
    answer = await ann.ask(
        Code.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="account", secretKey="12345678", admin="true"
    )
    assert answer.code == 209
    answer = await ann.ask(Code.DELETE_ACL_CONFIG, accessKey=ROOT)
    assert answer.code == 210


async def test_accounts_of_the_older_version(broker: Broker, tool: Tool) -> None:
    told = {"topicPerms": "a=DENY,b=SUB", "groupPerms": "g=SUB", "defaultTopicPerm": "PUB|SUB"}
    answer = await tool.ask(
        Code.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="account", secretKey="12345678", **told
    )
    assert answer.code == 0, answer.remark
    rights = broker.core.access.rights_of("account")

    def may(kind: AccessKind, name: str) -> str:
        both = (Operation.PUBLISH, Operation.SUBSCRIBE)
        return "".join(o[0] for o in both if rights.allows(o, kind, name, "10.0.0.1"))

    assert [may(AccessKind.TOPIC, name) for name in ("a", "b", "c")] == ["", "s", "ps"]
    assert [may(AccessKind.GROUP, name) for name in ("g", "h")] == ["s", ""]
    answer = await tool.ask(
        Code.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="account", defaultTopicPerm="DENY"
    )
    assert answer.code == 0, answer.remark
    rights = broker.core.access.rights_of("account")
    assert [may(AccessKind.TOPIC, name) for name in ("a", "b", "c")] == ["", "s", ""]
    info = await tool.ask(Code.GET_BROKER_CLUSTER_ACL_INFO)
    assert json.loads(info.ext["version"])["timestamp"] == broker.core.access.changed_ms
    assert list(json.loads(info.ext["allAclFileVersion"])) == ["IMAGO_META"]
    assert (await tool.ask(Code.DELETE_ACL_CONFIG, accessKey="account")).code == 0
    answer = await tool.ask(Code.DELETE_ACL_CONFIG, accessKey="account")
    assert answer.code == 210
    for wrong in (
        {"secretKey": "12345"},
        {"secretKey": "12345678", "topicPerms": "a=READ"},
        {"secretKey": "12345678", "whiteRemoteAddress": "10.0.0"},
    ):
        answer = await tool.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="account", **wrong)
        assert answer.code == 209
        assert "12345" not in (answer.remark or "")
        assert "account" not in broker.core.access.users


async def test_white_addresses(broker: Broker, tool: Tool) -> None:
    plain = await RemotingPeer.connect(broker.rocketmq_port)
    assert (await plain.call(Code.GET_BROKER_CONFIG)).code == 16
    answer = await tool.ask(
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="10.1.*.*,127.0.0.1-3"
    )
    assert answer.code == 0
    assert (await plain.call(Code.GET_BROKER_CONFIG)).code == 0
    answer = await tool.ask(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="home")
    assert answer.code == 211
    answer = await tool.ask(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="10.0.0.1")
    assert (await plain.call(Code.GET_BROKER_CONFIG)).code == 16
    told = {"accessKey": "account", "secretKey": "12345678", "whiteRemoteAddress": "127.0.0.*"}
    assert (await tool.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, **told)).code == 0
    account = Tool(plain, "account", "wrong")
    assert (await account.ask(Code.GET_BROKER_CONFIG)).code == 0
    await plain.close()


async def test_words_of_both_versions(broker: Broker) -> None:
    broker.core.access.put_user(User(name="ann", secret="password-1"), BY)
    plain = await RemotingPeer.connect(broker.rocketmq_port)
    pull = {"topic": "orders", "consumerGroup": "readers"}
    for version, code, words in (
        (Version.V4_9_8, 1, "No accessKey is configured"),
        (Version.V5_3_3, 16, "username cannot be null."),
    ):
        answer = await plain.call(Code.GET_MAX_OFFSET, pull, version=version)
        assert (answer.code, answer.remark) == (code, words)
    for user, secret, version, words in (
        ("ann", "wrong-1", Version.V4_9_8, "Check signature failed for accessKey=ann"),
        ("ann", "wrong-1", Version.V5_3_3, "check signature failed."),
        ("eve", "wrong-1", Version.V4_9_8, "No acl config for eve"),
        ("ann", "password-1", Version.V4_9_8, "No default permission for orders"),
        (
            "ann",
            "password-1",
            Version.V5_3_3,
            "User:ann has no permission to access Topic:orders from 127.0.0.1, "
            "no matched policies. It needs describe or subscribe.",
        ),
    ):
        answer = await call_signed(
            plain, Code.GET_MAX_OFFSET, pull, user=user, secret=secret, version=version
        )
        assert answer.remark == words
    await plain.close()


async def test_users_outlive_a_restart(config: BrokerConfig, tool: Tool, broker: Broker) -> None:
    body = policy("Topic:a", "Pub")
    made = {"username": "ann", "password": "password-1"}
    assert (await tool.ask(Code.AUTH_CREATE_USER, made, username="ann")).code == 0
    assert (await tool.ask(Code.AUTH_CREATE_ACL, body, subject="User:ann")).code == 0
    before = (broker.core.access.users, broker.core.access.rules, broker.core.access.digest())
    await broker.stop()
    again = Broker(config)
    await again.start()
    try:
        access = again.core.access
        assert (access.users, access.rules, access.digest()) == before
    finally:
        await again.stop()


async def test_secrets_are_shown_to_nobody(
    config: BrokerConfig, tool: Tool, broker: Broker
) -> None:
    """Not even to who may do everything, by their place in the log; nor by its offline dump."""
    made = {"username": "ann", "password": "password-of-ann"}
    assert (await tool.ask(Code.AUTH_CREATE_USER, made, username="ann")).code == 0
    end, found, refused = broker.store.log_end, 0, 0
    offset = broker.store.log_start
    while offset < end:
        record = broker.store.record_at(offset)
        assert record is not None
        found += b"password-of-ann" in record
        answer = await tool.ask(Code.VIEW_MESSAGE_BY_ID, offset=str(offset))
        refused += answer.code != 0
        assert b"password-of-ann" not in answer.body
        offset += len(record)
    assert (found, refused > 0) == (1, True)
    await broker.stop()
    shown = [to_json(record) for record in dump(Path(config.broker.data_dir))]
    assert any("access-user" in str(record) for record in shown)
    assert "password-of-ann" not in str(shown)
    assert SECRET not in str(shown)
