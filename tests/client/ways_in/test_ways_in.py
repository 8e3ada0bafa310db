"""One set of bounds: what a topic and a group may be, asked of every way to make one.

Routes, request codes, the Python client, its command, custom resources and the configuration file
are given the same values. Spark makes neither topics nor groups, nor do MetaQ's clients, but by the
patterns of the configuration.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.config import load
from imago_broker.core.metaq.metaq_filters import check_config
from imago_broker.errors import BrokerError as RefusedError
from imago_broker.model.bounds import allowed
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics import attributes
from imago_broker.model.topics.attributes import MESSAGE_TYPES
from imago_broker.model.topics.declared import declared_topic
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.figures.usage import UsageFigures
from imago_client import UsageError
from imago_client.errors import BrokerError
from imago_operator.broker_rules.keys import BOUNDS
from imago_operator.spec.kinds import KINDS
from imago_testing.command_lines import run_line
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.peers.admin import Admin
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker
    from imago_client import Client

KIND = {kind.name: kind for kind in KINDS}
QUEUES = (-(1 << 40), -3, -1, 0, 1, 65_536, 65_537, 70_000, 1 << 31, 1 << 40)
KINDS_OF_VALUE: tuple[object, ...] = (True, 1.5, "x", [], {})
RETRIES = {
    "retry_queues": (-70_000, -3, -1, 0, 1, 64, 65, 1024, 1025, 70_000, 1 << 31, 1 << 40),
    "retry_max_times": (-(1 << 31), -2, -1, 0, 1000, 1001, (1 << 31) - 1, 1 << 31, 1 << 40),
}
ON_THE_WIRE = {"retry_queues": "retryQueueNums", "retry_max_times": "retryMaxTimes"}
IN_KUBERNETES = {"retry_queues": "retryQueues", "retry_max_times": "maxRetries"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Every way into one broker; each answers whether it takes a value."""

    broker: Broker
    client: Client
    admin: Admin
    peer: RemotingPeer

    async def topic_by_route(self, value: object) -> bool:
        status, answer = await self.admin.call("PUT", "/admin/v1/topics/t", {"queues": value})
        assert status in (201, 400), answer
        return status == 201

    async def topic_by_code(self, value: object) -> bool:
        ext = {"readQueueNums": value, "writeQueueNums": value, "topic": "t", "perm": 6}
        more = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
        return await self._told(Code.UPDATE_AND_CREATE_TOPIC, ext | more)

    async def topic_by_list(self, value: object) -> bool:
        one = {"topicName": "t", "readQueueNums": value, "writeQueueNums": value}
        body = json.dumps({"topicConfigList": [one]}).encode()
        return await self._told(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)

    async def topic_by_client(self, value: Any) -> bool:
        try:
            await self.client.admin.create_topic("t", queues=value)
        except (UsageError, BrokerError):
            return False
        return True

    async def topic_by_command(self, value: object) -> bool:
        names = f"127.0.0.1:{self.broker.ports.namesrv_port}"
        words = ["topic", "create", "t", "--queues", str(value), "--bootstrap", names]
        done = await asyncio.to_thread(run_line, words)
        assert done.exit_code in (0, 2), done
        return done.exit_code == 0

    async def topic_by_resource(self, value: object) -> bool:
        return not list(
            KIND["ImagoTopic"].problems(manifest("ImagoTopic", {"spec.partitions": value}))
        )

    async def topic_by_file(self, value: Any) -> bool:
        try:
            check_config(load(f"[topics.t]\nqueues = {json.dumps(value)}"))
            self.broker.topics.create_or_update(declared_topic("t", {"queues": value}))
        except (ValueError, RefusedError):
            return False
        return True

    async def group_by_route(self, name: str, value: object) -> bool:
        status, answer = await self.admin.call("PUT", "/admin/v1/groups/g", {name: value})
        assert status in (201, 400), answer
        return status == 201

    async def group_by_code(self, name: str, value: object) -> bool:
        body = json.dumps({"groupName": "g", ON_THE_WIRE[name]: value}).encode()
        return await self._told(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)

    async def group_by_list(self, name: str, value: object) -> bool:
        one = {"groupName": "g", ON_THE_WIRE[name]: value}
        body = json.dumps({"groupConfigList": [one]}).encode()
        return await self._told(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body)

    async def group_by_client(self, name: str, value: Any) -> bool:
        numbers = {"retry_queues": "retry_queue_nums", "retry_max_times": "retry_max_times"}
        config = SubscriptionGroupConfig(group_name="g", **{numbers[name]: value})
        try:
            await self.client.admin.create_group(config)
        except (UsageError, BrokerError):
            return False
        return True

    async def group_by_resource(self, name: str, value: object) -> bool:
        changed = manifest("ImagoConsumerGroup", {f"spec.{IN_KUBERNETES[name]}": value})
        return not list(KIND["ImagoConsumerGroup"].problems(changed))

    async def _told(self, code: Code, ext: dict[str, object], body: bytes = b"") -> bool:
        answer = await self.peer.call(code, ext, body)
        return answer.code == ResponseCode.SUCCESS


@pytest.fixture
async def ways(broker: Broker, client: Client) -> AsyncIterator[Ways]:
    # Counting what 65,536 queues hold takes longer than clients wait on a busy machine.
    broker.topics.on_change[:] = [
        told
        for told in broker.topics.on_change
        if not isinstance(getattr(told, "__self__", None), UsageFigures)
    ]
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    async with aiohttp.ClientSession() as session:
        yield Ways(broker=broker, client=client, admin=Admin(session, broker), peer=peer)
    await peer.close()


TOPICS = ("route", "code", "list", "client", "command", "resource", "file")
GROUPS = ("route", "code", "list", "client", "resource")


@pytest.mark.parametrize("way", TOPICS)
async def test_a_topic_has_as_many_queues_by_one_way_as_by_another(ways: Ways, way: str) -> None:
    taken = []
    for value in QUEUES:
        if await getattr(ways, f"topic_by_{way}")(value):
            taken.append(value)
            assert way == "resource" or ways.broker.topics.get("t") is not None
        ways.broker.topics.delete("t")
    assert taken == [value for value in QUEUES if 1 <= value <= BOUNDS["topic.write_queues"][1]]


@pytest.mark.parametrize("way", [way for way in TOPICS if way not in ("code", "list")])
async def test_queues_are_a_whole_number_by_every_way(ways: Ways, way: str) -> None:
    """RocketMQ's own readers take text and anything that is written like a number."""
    for value in KINDS_OF_VALUE:
        assert not await getattr(ways, f"topic_by_{way}")(value), (way, value)
        assert ways.broker.topics.get("t") is None


@pytest.mark.parametrize("way", GROUPS)
@pytest.mark.parametrize("name", RETRIES)
async def test_a_group_is_tried_again_by_one_way_as_by_another(
    ways: Ways, way: str, name: str
) -> None:
    low, high = BOUNDS[f"group.{name}"]
    taken = []
    for value in RETRIES[name]:
        if await getattr(ways, f"group_by_{way}")(name, value):
            taken.append(value)
            found = ways.broker.groups.get("g")
            assert way == "resource" or (found is not None and getattr(found, name) == value)
        ways.broker.groups.delete("g")
    assert taken == [value for value in RETRIES[name] if low <= value <= high]


@pytest.mark.parametrize("way", ["route", "resource"])
async def test_settings_of_a_group_are_of_one_kind_by_every_way(ways: Ways, way: str) -> None:
    for value in KINDS_OF_VALUE:
        for name in RETRIES:
            assert not await getattr(ways, f"group_by_{way}")(name, value), (way, name, value)
        assert ways.broker.groups.get("g") is None


async def test_an_unknown_name_is_refused_where_people_write_names(ways: Ways) -> None:
    """RocketMQ's own readers leave out what they do not know: tools of later versions send more."""
    for path in ("/admin/v1/topics/t", "/admin/v1/groups/t"):
        assert (await ways.admin.call("PUT", path, {"retryQueues": 1}))[0] == 400
    with pytest.raises(ValueError, match="no such key"):
        declared_topic("t", {"queue": 1})
    for kind in ("ImagoTopic", "ImagoConsumerGroup"):
        assert list(KIND[kind].problems(manifest(kind, {"spec.queues": 1})))


@pytest.mark.parametrize(("kind", "cls"), [("topic", TopicConfig), ("group", GroupConfig)])
def test_the_operator_has_the_bounds_of_the_brokers(kind: str, cls: type) -> None:
    whole = {name: one for name, one in allowed(cls).items() if one.kind is int}
    assert whole
    for name, one in whole.items():
        assert BOUNDS[f"{kind}.{name}"] == (one.low, one.high), "run `make docs`"


PERMS: tuple[object, ...] = (9, 3, 1, 0, 8, -2, 16, "6", True, 6.0, None, 2, 4, 6)


async def test_a_permission_is_read_write_or_both_by_every_way(ways: Ways) -> None:
    """RocketMQ's tools may set the bits that its own topics have, too."""
    for perm in PERMS:
        taken = type(perm) is int and perm in (2, 4, 6)
        status, answer = await ways.admin.call("PUT", "/admin/v1/topics/t", {"perm": perm})
        assert (status < 300) == taken, (perm, answer)
        ext = {"readQueueNums": 1, "writeQueueNums": 1, "topic": "t", "perm": perm}
        more = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
        if type(perm) is int:
            own = {"imagoChange": "ensure", "imagoNamed": "perm"}
            ways.broker.topics.delete("t")
            assert await ways._told(Code.UPDATE_AND_CREATE_TOPIC, ext | more | own) == taken, perm
            ways.broker.topics.delete("t")
            by_tool = await ways._told(Code.UPDATE_AND_CREATE_TOPIC, ext | more)
            assert by_tool == (0 <= perm <= 15), perm


ATTRIBUTES: dict[str, dict[str, object]] = {
    "foo": {"foo": 1},
    "queues": {"queues": "x"},
    "sealed": {"sealed": "true"},
    "materialised": {"materialised": "true"},
    "metaq.begin.0": {"metaq.begin.0": "5"},
    "metaq.filter.": {"metaq.filter.": "tags: a"},
    "retention.m": {"retention.m": "1"},
    "message.type": {"message.type": "FOO"},
    "message.type ": {"message.type": "fifo"},
    "metaq.filter": {"metaq.filter.g": "tags: " + "a" * 40_000},
}


@pytest.mark.parametrize("wrong", ATTRIBUTES)
async def test_attributes_that_nothing_reads_are_refused_where_people_write_them(
    ways: Ways, wrong: str
) -> None:
    said = ATTRIBUTES[wrong]
    status, answer = await ways.admin.call("PUT", "/admin/v1/topics/t", {"attributes": said})
    assert (status, wrong.strip() in answer["message"] or "bytes" in answer["message"]) == (
        400,
        True,
    ), answer
    texts = {name: str(value) for name, value in said.items()}
    with pytest.raises((UsageError, BrokerError)):
        await ways.client.admin.create_topic("t", attributes=texts)
    names = f"127.0.0.1:{ways.broker.ports.namesrv_port}"
    words = ["topic", "create", "t", "--bootstrap", names]
    words += [f"--set={name}={value}" for name, value in said.items()]
    done = await asyncio.to_thread(run_line, words)
    assert done.exit_code != 0
    assert ways.broker.topics.get("t") is None


@pytest.mark.parametrize("kind", MESSAGE_TYPES)
async def test_a_type_of_messages_is_taken_by_every_way_in(ways: Ways, kind: str) -> None:
    said = {"message.type": kind}
    assert (await ways.admin.call("PUT", "/admin/v1/topics/t", {"attributes": said}))[0] == 201
    await ways.client.admin.create_topic("u", attributes=said)
    found = [ways.broker.topics.get(name) for name in "tu"]
    assert [topic and topic.attributes for topic in found] == [said, said]


async def test_attributes_of_tools_are_kept_within_bounds(
    ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    ext = {"readQueueNums": 1, "writeQueueNums": 1, "topic": "t", "perm": 6, "order": "false"}
    more = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
    monkeypatch.setattr(attributes, "ATTRIBUTES_BYTES_MAX", 100)
    for size, taken in ((97, True), (98, False)):
        named = ext | more | {"attributes": "+foo=" + "x" * size}
        assert await ways._told(Code.UPDATE_AND_CREATE_TOPIC, named) == taken, size
        group = {"groupName": "g", "attributes": {"foo": "x" * size}}
        code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert await ways._told(code, {}, json.dumps(group).encode()) == taken, size
    # What stands there from before is no obstacle to other changes, nor to having less.
    monkeypatch.setattr(attributes, "ATTRIBUTES_BYTES_MAX", 50)
    assert (await ways.admin.call("PUT", "/admin/v1/topics/t", {"queues": 2}))[0] == 200
    assert await ways._told(
        Code.UPDATE_AND_CREATE_TOPIC, ext | more | {"attributes": "+foo=" + "x" * 60}
    )


async def test_values_are_shown_as_they_were_sent(ways: Ways) -> None:
    for body, shown in (
        ({"queues": True}, "queues: true,"),
        ({"readQueues": None}, "readQueues: null,"),
        ({"dialects": ["metaq"]}, 'dialects: ["metaq"],'),
        ({"order": "x"}, 'order: "x",'),
        ({"queues": 65_537}, "queues: 65537, must be 1 to 65536"),
        ({"acknowledgement": ["x"]}, 'acknowledgement: ["x"],'),
        ({"attributes": {"retention.ms": [1]}}, '"retention.ms" is [1],'),
    ):
        status, answer = await ways.admin.call("PUT", "/admin/v1/topics/t", body)
        assert (status, shown in answer["message"]) == (400, True), answer
        assert answer["message"].count("opic") == 1, answer


async def test_a_password_is_a_text(ways: Ways) -> None:
    for password, shown in ((5, "password: 5, must be a text"), (True, "password: true, must be")):
        status, answer = await ways.admin.call("PUT", "/admin/v1/users/ann", {"password": password})
        assert (status, shown in answer["message"]) == (400, True), answer


async def test_a_topic_on_no_shard_is_not_made(ways: Ways) -> None:
    wrong: tuple[object, ...] = ([], 0, -1, True, "0", ["x"], [0.0], [True], {})
    for shards in wrong:
        status, answer = await ways.admin.call("PUT", "/admin/v1/topics/t", {"shards": shards})
        assert (status, "shards" in answer["message"]) == (400, True), shards
    assert ways.broker.topics.get("t") is None


async def test_of_a_list_all_are_made_or_none(ways: Ways) -> None:
    two = [{"topicName": "a"}, {"topicName": "b", "attributes": {"+retention.ms": "x"}}]
    body = json.dumps({"topicConfigList": two}).encode()
    answer = await ways.peer.call(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert answer.code != ResponseCode.SUCCESS
    assert ways.broker.topics.get("a") is None
    ways.broker.groups.groups_max = len(ways.broker.groups.all())
    body = b'{"groupConfigList":[{"groupName":"a"}]}'
    answer = await ways.peer.call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body)
    assert answer.code != ResponseCode.SUCCESS
    assert ways.broker.groups.get("a") is None
