"""Every admin route asks for what the request code of the same meaning does, and charges the same.

Each route is compared with a code here, or said to have none: a new one has to be put down.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import aiohttp
import pytest

from imago_broker.admin import rights as route_rights
from imago_broker.admin.routes import ROUTES
from imago_broker.app.access import known_settings, topics_at
from imago_broker.features.catalogue import BROKER_RIGHTS
from imago_broker.features.catalogue import LIMITED as DIRECTIONS
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.quotas import Limit, parse_subject
from imago_broker.model.access.users import User, new_token
from imago_broker.model.groups import GroupConfig
from imago_broker.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq.access.rights import Asked
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.admin import Admin
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.signing import call_signed, valid_request
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker
    from imago_broker.model.access.access import Need

BY = Actor("the tests", "nowhere")
TOPICS: Final = ("orders", "%RETRY%readers", "%DLQ%readers", HALF_TOPIC, SCHEDULE_TOPIC)
GROUP: Final = "readers"
LARGE: Final = b"x" * 10_000
UNIQUE: Final = "7F000001000018B4AAC2A5A5A5A50000"

SAME: Final[dict[str, Code]] = {
    "GET /admin/v1/status": Code.GET_BROKER_RUNTIME_INFO,
    "GET /admin/v1/topics": Code.GET_ALL_TOPIC_CONFIG,
    "GET /admin/v1/topics/{topic}": Code.GET_TOPIC_CONFIG,
    "PUT /admin/v1/topics/{topic}": Code.UPDATE_AND_CREATE_TOPIC,
    "DELETE /admin/v1/topics/{topic}": Code.DELETE_TOPIC_IN_BROKER,
    "GET /admin/v1/groups": Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "GET /admin/v1/groups/{group}": Code.GET_SUBSCRIPTIONGROUP_CONFIG,
    "PUT /admin/v1/groups/{group}": Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    "DELETE /admin/v1/groups/{group}": Code.DELETE_SUBSCRIPTIONGROUP,
    "POST /admin/v1/groups/{group}/reset": Code.INVOKE_BROKER_TO_RESET_OFFSET,
    "POST /admin/v1/metaq/topics/{topic}/groups/{group}/partitions/{partition}/skip": (
        Code.INVOKE_BROKER_TO_RESET_OFFSET
    ),
    "GET /admin/v1/users": Code.AUTH_LIST_USER,
    "GET /admin/v1/users/{user}": Code.AUTH_GET_USER,
    "PUT /admin/v1/users/{user}": Code.AUTH_UPDATE_USER,
    "DELETE /admin/v1/users/{user}": Code.AUTH_DELETE_USER,
    "GET /admin/v1/access": Code.AUTH_LIST_ACL,
    "PUT /admin/v1/access": Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    "GET /admin/v1/messages": Code.QUERY_MESSAGE,
    "POST /admin/v1/messages": Code.SEND_MESSAGE,
    "GET /admin/v1/config": Code.GET_BROKER_CONFIG,
    "PATCH /admin/v1/config": Code.UPDATE_BROKER_CONFIG,
}
"""By method and path, the code that does the same."""
WITHOUT_CODE: Final = re.compile(
    r"(GET|POST) /admin/v1/("
    r"session|cluster|audit|history|live|shard|restart|handover|elect|fence|cordon|uncordon|drain|undrain|operator-epoch|features|"
    r"pipelines|readers|groups/\{group\}/replay|topics/\{topic\}/|users/\{user\}/tokens|quotas|metaq|access/exchange)|"
    r"(PUT|DELETE) /admin/v1/(quotas/|users/\{user\}/tokens|cluster/(clients|backups)/|fence$)|"
    r"(GET|POST|PUT) /($|dashboard/|healthz|livez|readyz|writez|metrics|login|logout|\{function:)"
)
"""Routes about what no request code is about."""


def right_of(name: str) -> Any:
    return next(right for method, path, _, right in ROUTES if f"{method} {path}" == name)


class Request:
    """What a right sees of a request."""

    def __init__(self, topic: str) -> None:
        self.match_info = {"topic": topic, "group": GROUP, "user": "somebody", "partition": "0"}
        self.query = {"topic": topic, "key": "k"}


def of_code(broker: Broker, code: Code, topic: str) -> set[Need]:
    ext, body = valid_request(code, offset=0)
    ext = {name: value.replace("orders", topic) for name, value in ext.items()}
    command = RemotingCommand(code=code, ext=ext, body=body)
    known = known_settings(broker.topics, broker.groups)
    return set(BROKER_RIGHTS[code](Asked(command, topics_at(broker.store), known=known)))


def test_each_route_is_compared_with_a_code_or_has_none() -> None:
    names = [f"{method} {path}" for method, path, _, _ in ROUTES]
    assert [name for name in SAME if name not in names] == []
    assert [name for name in names if name not in SAME and not WITHOUT_CODE.match(name)] == []


@pytest.mark.parametrize("there", [False, True], ids=["new names", "known names"])
@pytest.mark.parametrize("topic", TOPICS)
async def test_routes_need_what_codes_need(broker: Broker, topic: str, there: bool) -> None:
    wrong = {}
    if there:
        broker.groups.update(GroupConfig(name=GROUP))
        broker.topics.ensure_own(topic)
    for name, code in SAME.items():
        needs = set(right_of(name)(broker.admin_services(), Request(topic)))
        wanted = of_code(broker, code, topic)
        if name.endswith("/reset"):  # its topic is in the body: see below
            wanted -= of_code(broker, Code.GET_TOPIC_CONFIG, topic)
        if needs != wanted:
            wrong[name] = (needs, wanted)
    assert wrong == {}


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    for name in ("mine", "secrets"):
        broker.topics.create_or_update(TopicConfig(name=name, read_queues=1, write_queues=1))
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Admin(session, broker)


class Caller:
    """A user on both ports."""

    def __init__(self, admin: Admin, peer: RemotingPeer, *rules: AccessRule) -> None:
        user, self._token = new_token(User(name="ann", secret="secret"), expires_ms=0, note="")
        admin.broker.core.access.put_account(user, rules, BY)
        self._admin, self._peer = admin, peer

    async def http(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        bearer = {"Authorization": f"Bearer {self._token}"}
        return await self._admin.call(method, path, body, **bearer)

    async def remoting(self, code: Code, ext: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        return await call_signed(self._peer, code, ext, body, user="ann", secret="secret")


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RemotingPeer]:
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    yield peer
    await peer.close()


def rule(kind: AccessKind, name: str) -> AccessRule:
    return AccessRule(Resource(kind, name), frozenset(Operation))


async def test_a_group_is_not_moved_in_a_topic_that_its_owner_may_not_read(
    admin: Admin, peer: RemotingPeer
) -> None:
    ann = Caller(admin, peer, rule(AccessKind.GROUP, "own"), rule(AccessKind.TOPIC, "mine"))
    body = {"group": "own", "topic": "secrets", "timestamp": "-1", "isForce": "true"}
    assert (await ann.remoting(Code.INVOKE_BROKER_TO_RESET_OFFSET, body)).code == 16
    for topic in ("secrets", "nowhere", "%RETRY%others"):
        for to in ("latest", {"0": 0}):
            reset: dict[str, object] = {"topic": topic, "to": to}
            status, said = await ann.http("POST", "/admin/v1/groups/own/reset", reset)
            assert (status, said["error"]) == (403, "forbidden"), (topic, said)
            assert not {"offsets", "shards"} & set(said)
    assert admin.broker.core.offsets.of_group("own") == {}
    reset = {"topic": "mine", "to": 0, "create": True}
    status, said = await ann.http("POST", "/admin/v1/groups/own/reset", reset)
    assert status == 200, said


async def test_a_group_is_made_by_its_reset_for_those_alone_who_may_make_it(
    admin: Admin, peer: RemotingPeer
) -> None:
    alter = AccessRule(Resource(AccessKind.GROUP, "own"), frozenset({Operation.ALTER}))
    ann = Caller(admin, peer, alter, rule(AccessKind.TOPIC, "mine"))
    reset = {"topic": "mine", "to": 0, "create": True}
    status, said = await ann.http("POST", "/admin/v1/groups/own/reset", reset)
    assert (status, said["error"]) == (403, "forbidden")
    assert admin.broker.core.groups.get("own") is None
    admin.broker.core.groups.update(GroupConfig(name="own"))
    status, said = await ann.http("POST", "/admin/v1/groups/own/reset", reset)
    assert status == 200, said


@pytest.mark.parametrize(
    ("operation", "alters", "creates"),
    [
        (Operation.CREATE, True, True),
        (Operation.ALTER, True, False),
        (Operation.DELETE, False, False),
    ],
)
async def test_settings_ask_for_the_same_of_what_is_there_and_of_what_is_not(
    admin: Admin, peer: RemotingPeer, operation: Operation, alters: bool, creates: bool
) -> None:
    """RocketMQ asks to create in both cases; who may alter alone makes nothing new."""
    resources = (Resource(AccessKind.TOPIC), Resource(AccessKind.GROUP))
    rules = [AccessRule(replace(r, prefix=True), frozenset({operation})) for r in resources]
    ann = Caller(admin, peer, *rules)
    admin.broker.groups.update(GroupConfig(name="mine"))
    for name, allowed in (("mine", alters), ("fresh", creates)):
        group = {"groupName": name, "consumeEnable": True}
        topic, _ = valid_request(Code.UPDATE_AND_CREATE_TOPIC, offset=0)
        for code, ext, body in (
            (Code.UPDATE_AND_CREATE_TOPIC, topic | {"topic": name, "attributes": ""}, b""),
            (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode()),
        ):
            answer = await ann.remoting(code, ext, body)
            assert answer.code == (0 if allowed else 16), (name, code, answer.remark)
    for name, allowed in (("mine", alters), ("newer", creates)):
        for path, said in (("topics", {"queues": 1}), ("groups", {"retry_queues": 1})):
            status, told = await ann.http("PUT", f"/admin/v1/{path}/{name}", said)
            assert (status < 300, status == 403) == (allowed, not allowed), (path, name, told)


async def test_messages_are_charged_whatever_way_they_are_read(
    admin: Admin, peer: RemotingPeer
) -> None:
    rules = [rule(AccessKind.TOPIC, name) for name in ("mine", "other")]
    ann, access = Caller(admin, peer, *rules), admin.broker.core.access
    known = f"KEYS\x01k\x02UNIQ_KEY\x01{UNIQUE}\x02"
    sent = await ann.remoting(Code.SEND_MESSAGE_V2, send_ext("mine", i=known), LARGE)
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    offset = int(sent.ext["msgId"][-16:], 16)
    find = {"topic": "mine", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    path_of_messages = "/admin/v1/messages"
    ways = (
        ("?topic=mine&key=k", Code.QUERY_MESSAGE, find),
        ("?topic=mine&queue=0&offset=0&limit=1", Code.QUERY_MESSAGE, find),
        (f"?id={sent.ext['msgId']}", Code.VIEW_MESSAGE_BY_ID, {"offset": offset}),
        (f"?id={UNIQUE}", Code.QUERY_MESSAGE, find),
        (f"?topic=other&id={UNIQUE}", Code.QUERY_MESSAGE, find),
    )
    for path, code, ext in ways:
        assert code in DIRECTIONS
        for subject in map(parse_subject, ("user:ann", "topic:mine")):
            owed = []
            for by_http in (True, False):
                # More is taken at once than is forgiven: nothing more is given.
                access.set_quotas(subject, {Limit.CONSUMER_BYTES: 1000}, BY)
                if by_http:
                    status, found = await ann.http("GET", path_of_messages + path)
                    assert (status, len(found["items"])) == (200, 1), found
                    status, said = await ann.http("GET", path_of_messages + path)
                    assert (status, said["error"]) == (429, "quota")
                    assert f"{subject} has used up consumerBytes" in said["message"]
                else:
                    assert (await ann.remoting(code, ext)).code == ResponseCode.SUCCESS
                    assert (await ann.remoting(code, ext)).code == ResponseCode.SYSTEM_BUSY
                account = admin.broker.core.quotas.accounts[subject]
                assert account.refused == 1
                owed.append(round(account.throttled_ms))
                access.set_quotas(subject, {}, BY)
            assert owed[0] == owed[1] > 0


@pytest.mark.parametrize("subject", ["user:ann", "topic:mine"])
async def test_messages_are_charged_whatever_way_they_are_sent(
    admin: Admin, peer: RemotingPeer, subject: str
) -> None:
    ann, access = Caller(admin, peer, rule(AccessKind.TOPIC, "mine")), admin.broker.core.access
    found, path = parse_subject(subject), "/admin/v1/messages?topic=mine"
    owed, body = [], {"body": LARGE.decode()}
    for by_http in (True, False):
        access.set_quotas(found, {Limit.PRODUCER_BYTES: 1000}, BY)
        if by_http:
            assert (await ann.http("POST", path, body))[0] == 201
            status, said = await ann.http("POST", path, body)
            assert (status, said["error"]) == (429, "quota")
            assert f"{subject} has used up producerBytes" in said["message"]
        else:
            sent = [
                (await ann.remoting(Code.SEND_MESSAGE_V2, send_ext("mine"), LARGE)).code
                for _ in range(2)
            ]
            assert sent == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY]
        account = admin.broker.core.quotas.accounts[found]
        assert account.refused == 1
        owed.append(round(account.throttled_ms))
        access.set_quotas(found, {}, BY)
    assert owed[0] == owed[1] > 0
    assert admin.broker.store.queue_range("mine", 0)[1] == 2, "what is refused is not stored"


async def test_what_goes_back_to_a_group_is_charged_to_who_replays_it(
    admin: Admin, peer: RemotingPeer
) -> None:
    letters, retry = "%DLQ%readers", "%RETRY%readers"
    rules = [rule(AccessKind.TOPIC, name) for name in (letters, retry)]
    ann, broker = Caller(admin, peer, *rules, rule(AccessKind.GROUP, GROUP)), admin.broker
    for name in (letters, retry):
        broker.topics.create_or_update(TopicConfig(name=name, read_queues=1, write_queues=1))
    broker.offsets.commit(GROUP, retry, 0, 0)
    sent = f"/admin/v1/messages?topic={quote(letters)}"
    for _ in range(2):
        assert (await ann.http("POST", sent, {"body": LARGE.decode()}))[0] == 201
    broker.core.access.set_quotas(parse_subject("user:ann"), {Limit.PRODUCER_BYTES: 1000}, BY)
    replay = f"/admin/v1/groups/{GROUP}/replay?limit=1"
    status, said = await ann.http("POST", replay)
    assert (status, said["items"][0]["sent"]) == (200, 1), said
    status, said = await ann.http("POST", replay)
    assert (status, said["error"]) == (429, "quota")
    assert broker.store.queue_range(retry, 0)[1] == 1


async def test_a_message_that_is_seen_late_is_not_shown_to_who_may_not_read_it(
    admin: Admin, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an id means is looked up when the right is asked, and again when it is shown."""
    ann = Caller(admin, peer, rule(AccessKind.TOPIC, "mine"), rule(AccessKind.TOPIC, "secrets"))
    sent = await ann.remoting(Code.SEND_MESSAGE_V2, send_ext("secrets"), b"secret")
    ann = Caller(admin, peer, rule(AccessKind.TOPIC, "mine"))
    monkeypatch.setattr(route_rights, "by_id", lambda _services, _text: [])  # not seen yet
    path = f"/admin/v1/messages?topic=mine&id={sent.ext['msgId']}"
    status, said = await ann.http("GET", path)
    assert (status, said["error"]) == (403, "forbidden")
    assert "secrets" not in str(said)
