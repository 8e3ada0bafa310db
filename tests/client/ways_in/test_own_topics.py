"""What brokers have for themselves: topics and attributes that no way in makes or changes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.config import load
from imago_broker.core.metaq.metaq_filters import check_config
from imago_broker.errors import RequestError
from imago_broker.model import names
from imago_broker.model.topics.topics import TopicConfig
from imago_client.errors import BrokerError
from imago_operator.spec.kinds import KINDS
from imago_testing.command_lines import run_line
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.peers.admin import Admin
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.static_topics import mapping, told
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker
    from imago_client import Client

DELAYED = "UNIQ_KEY\x01" + "9" * 32 + "\x02DELAY\x013\x02"
OWN = (
    names.SCHEDULE_TOPIC, names.TIMER_TOPIC, names.HALF_TOPIC, names.DEFAULT_TOPIC,
    "imago_REPLY_TOPIC", "rmq_sys_mine",
)  # fmt: skip


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with aiohttp.ClientSession() as session:
        yield Admin(session, broker)


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RemotingPeer]:
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    yield peer
    await peer.close()


def by_code(topic: str, **more: object) -> dict[str, object]:
    numbers = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": "false"}
    words = {"topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
    return numbers | words | more


@pytest.mark.parametrize("topic", OWN)
async def test_nobody_makes_or_changes_what_brokers_have_for_themselves(
    broker: Broker, client: Client, admin: Admin, peer: RemotingPeer, topic: str
) -> None:
    before = broker.topics.get(topic)
    status, answer = await admin.call("PUT", f"/admin/v1/topics/{topic}", {"queues": 1})
    assert (status, answer["error"]) == (403, "system_topic")
    if topic != "rmq_sys_mine":  # which a drain takes along: clients have sent to it
        opened = {"topic": TopicConfig(name=topic, read_queues=1, write_queues=1).to_json()}
        status, answer = await admin.call("POST", f"/admin/v1/topics/{topic}/open", opened)
        assert (status, "the broker's own" in answer["message"]) == (400, True), answer
    listed = json.dumps({"topicConfigList": [{"topicName": "t"}, {"topicName": topic}]}).encode()
    answers = [
        await peer.call(Code.UPDATE_AND_CREATE_TOPIC, by_code(topic)),
        await peer.call(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, listed),
        await told(peer, mapping("shard-0", {}), topic=topic),
    ]
    assert {answer.code for answer in answers} == {ResponseCode.INVALID_PARAMETER}
    with pytest.raises(BrokerError):
        await client.admin.create_topic(topic, queues=1)
    servers = f"127.0.0.1:{broker.ports.namesrv_port}"
    words = ["topic", "create", topic, "--queues", "1", "--bootstrap", servers]
    assert (await asyncio.to_thread(run_line, words)).exit_code != 0
    kind = next(kind for kind in KINDS if kind.name == "ImagoTopic")
    if not topic.endswith("_REPLY_TOPIC"):  # whose cluster's it is a resource does not know
        assert list(kind.problems(manifest("ImagoTopic", {"spec.topicName": topic})))
        with pytest.raises(ValueError, match="the broker's own"):
            check_config(load(f"[topics.{topic}]\nqueues = 1"))
    with pytest.raises(RequestError, match="the broker's own"):
        broker.topics.create_or_update(TopicConfig(name=topic, read_queues=1, write_queues=1))
    assert (broker.topics.get(topic), broker.topics.get("t")) == (before, None)
    assert (await peer.put("T", b"x", properties=DELAYED)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "change",
    ["+materialised=true", "+metaq.begin.0=999999999", "+metaq.begin.0=x", "+sealed=x"],
)
async def test_no_code_sets_what_brokers_keep_of_their_queues(
    broker: Broker, peer: RemotingPeer, change: str
) -> None:
    await peer.call(Code.UPDATE_AND_CREATE_TOPIC, by_code("t"))
    before = broker.topics.get("t")
    asked = by_code("t", attributes=f"+foo=1,{change}")
    answer = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, asked)
    assert (answer.code, "the broker itself keeps it" in (answer.remark or "")) == (1, True)
    assert broker.topics.get("t") == before
    name, _, value = change[1:].partition("=")
    one: dict[str, Any] = {"topicName": "t", "attributes": {name: value}}
    listed = json.dumps({"topicConfigList": [one]}).encode()
    assert (await peer.call(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, listed)).code == 1
    assert broker.topics.get("t") == before


async def test_what_brokers_keep_of_their_queues_is_not_taken_away(
    broker: Broker, admin: Admin, peer: RemotingPeer
) -> None:
    await peer.call(Code.UPDATE_AND_CREATE_TOPIC, by_code("t"))
    await peer.put("t", b"x", queue_id=0)
    begins = broker.topics.delete_partitions("t", [0])
    assert begins[0] > 0
    gone = by_code("t", attributes="-metaq.begin.0")
    answer = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, gone)
    assert (answer.code, "the broker itself keeps it" in (answer.remark or "")) == (29, True)
    broker.topics.create_or_update(TopicConfig(name="t", read_queues=2, write_queues=2))
    config = broker.topics.get("t")
    assert config is not None
    assert config.attributes == {"metaq.begin.0": str(begins[0]), "materialised": "true"}
    # Another shard has queues of its own, which begin where they begin.
    told_here = {"topic": config.to_json() | {"name": "u"}}
    status, _ = await admin.call("POST", "/admin/v1/topics/u/open", told_here)
    opened = broker.topics.get("u")
    assert (status, opened and opened.attributes) == (200, {})
