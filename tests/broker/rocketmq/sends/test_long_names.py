"""Whatever name a request brings into the broker's state: too long, it is refused and not kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.remoting import send_ext
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer

Request = tuple[Code, dict[str, object], bytes]
SIZES = (256, 64 << 10)
TOPIC = {
    "defaultTopic": "TBW102",
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _lock(group: str, client: str) -> bytes:
    queue = {"topic": "T", "brokerName": "shard-0", "queueId": 0}
    return _json(consumerGroup=group, clientId=client, mqSet=[queue])


def _beat(client: str = "c", group: str = "G", producer: str = "P", **wanted: object) -> bytes:
    subscription = {"topic": "T", "subString": "*", **wanted}
    consumer = {"groupName": group, "subscriptionDataSet": [subscription]}
    return _json(
        clientID=client, consumerDataSet=[consumer], producerDataSet=[{"groupName": producer}]
    )


def requests(name: str) -> dict[str, Request]:
    """Each request that changes something, with this name in each place that has one."""
    commit: dict[str, object] = {"queueId": 0, "commitOffset": 1}
    back: dict[str, object] = {"offset": 0, "delayLevel": 0, "originTopic": "T"}
    reset: dict[str, object] = {"timestamp": -1, "isForce": "true"}
    topics = [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]
    return {
        "lock group": (Code.LOCK_BATCH_MQ, {}, _lock(name, "c")),
        "lock client": (Code.LOCK_BATCH_MQ, {}, _lock("G", name)),
        "unlock group": (Code.UNLOCK_BATCH_MQ, {}, _lock(name, "c")),
        "unlock client": (Code.UNLOCK_BATCH_MQ, {}, _lock("G", name)),
        "beat client": (Code.HEART_BEAT, {}, _beat(name)),
        "beat group": (Code.HEART_BEAT, {}, _beat(group=name)),
        "beat producer": (Code.HEART_BEAT, {}, _beat(producer=name)),
        "beat topic": (Code.HEART_BEAT, {}, _beat(topic=name)),
        "beat type": (Code.HEART_BEAT, {}, _beat(expressionType=name)),
        "beat expression": (Code.HEART_BEAT, {}, _beat(subString=name * 129)),
        "beat tags": (Code.HEART_BEAT, {}, _beat(tagsSet=[name * 129])),
        "commit group": (
            Code.UPDATE_CONSUMER_OFFSET,
            {**commit, "consumerGroup": name, "topic": "T"},
            b"",
        ),
        "commit topic": (
            Code.UPDATE_CONSUMER_OFFSET,
            {**commit, "consumerGroup": "G", "topic": name},
            b"",
        ),
        "send": (Code.SEND_MESSAGE_V2, send_ext(name), b"x"),
        "send batch": (Code.SEND_BATCH_MESSAGE, send_ext(name, m="true"), b""),
        "send v1": (
            Code.SEND_MESSAGE,
            {
                "producerGroup": "P",
                "topic": name,
                "defaultTopic": "TBW102",
                "defaultTopicQueueNums": 4,
                "queueId": 0,
                "sysFlag": 0,
                "bornTimestamp": 1,
                "flag": 0,
                "properties": "",
            },
            b"x",
        ),
        "send back": (Code.CONSUMER_SEND_MSG_BACK, {**back, "group": name}, b""),
        "topic": (Code.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "topic": name}, b""),
        "topics": (Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, _json(topicConfigList=topics)),
        "group": (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, _json(groupName=name)),
        "groups": (
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {},
            _json(groupConfigList=[{"groupName": name}]),
        ),
        "clone": (
            Code.CLONE_GROUP_OFFSET,
            {"srcGroup": "G", "destGroup": name, "topic": "T"},
            b"",
        ),
        "reset group": (
            Code.INVOKE_BROKER_TO_RESET_OFFSET,
            {**reset, "topic": "T", "group": name},
            b"",
        ),
        "reset topic": (
            Code.INVOKE_BROKER_TO_RESET_OFFSET,
            {**reset, "topic": name, "group": "G"},
            b"",
        ),
    }


REMOVALS = {Code.DELETE_TOPIC_IN_BROKER: "topic", Code.DELETE_SUBSCRIPTIONGROUP: "groupName"}
"""What is not there is deleted already, as the originals answer; nothing may be kept of it."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", requests(""))
async def test_a_name_that_is_too_long_is_refused_and_nothing_is_kept(
    peer: RemotingPeer, broker: Broker, place: str, size: int
) -> None:
    await peer.put("T", b"x")
    await peer.call(Code.HEART_BEAT, {}, _beat())
    end = broker.store.log_end
    code, ext, body = requests("g" * size)[place]
    answer = await peer.call(code, ext, body)
    assert answer.code != ResponseCode.SUCCESS, answer
    assert broker.store.log_end == end
    assert list(broker.rocketmq.clients.registry.consumer_groups()) in ([], ["G"])
    assert (await peer.call(Code.LOCK_BATCH_MQ, {}, _lock("G", "c"))).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", REMOVALS)
@pytest.mark.parametrize("size", SIZES)
async def test_what_cannot_be_there_is_deleted_without_a_word_in_the_log(
    peer: RemotingPeer, broker: Broker, code: Code, size: int
) -> None:
    end = broker.store.log_end
    await peer.call(code, {REMOVALS[code]: "g" * size})
    assert broker.store.log_end == end


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (Code.LOCK_BATCH_MQ, lambda name: _lock(name, "c")),
        (Code.LOCK_BATCH_MQ, lambda name: _lock("G", name)),
        (Code.HEART_BEAT, _beat),
    ],
    ids=["lock group", "lock client", "beat client"],
)
async def test_a_name_of_megabytes_is_refused_and_nothing_is_kept(
    peer: RemotingPeer, broker: Broker, code: Code, body: Callable[[str], bytes]
) -> None:
    await peer.put("T", b"x")
    end = broker.store.log_end
    answer = await peer.call(code, {}, body("g" * (5 << 20)))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.store.log_end == end


@pytest.mark.parametrize(
    ("group", "client"),
    [
        ("g" * 255, "10.0.0.1@DEFAULT#123"),
        ("%RETRY%orders", "fe80::1%eth0@4711#881234567890@unit"),
        ("a.b-c_d|e", "c" * 255),
    ],
)
async def test_names_of_real_clients_pass(peer: RemotingPeer, group: str, client: str) -> None:
    await peer.put("T", b"x")
    answer = await peer.call(Code.LOCK_BATCH_MQ, {}, _lock(group, client))
    assert answer.code == ResponseCode.SUCCESS
    assert len(json.loads(answer.body)["lockOKMQSet"]) == 1
    assert (await peer.call(Code.HEART_BEAT, {}, _beat(client))).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("topic", ["x" * 300, "x" * 40_000, "../../..", "a/b", "\x00"])
@pytest.mark.parametrize("code", [14, 29, 30, 31, 32, 300, 321])
async def test_topic_that_cannot_be_is_looked_for_nowhere(
    peer: RemotingPeer,
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    code: int,
) -> None:
    folders = broker.store.components.directory._folders

    def nobody_asks(name: str, queue_id: int) -> bool:
        raise AssertionError(f"looked for the files of {name[:20]!r}/{queue_id}")

    monkeypatch.setattr(folders, "is_on_disk", nobody_asks)
    fields = {"topic": topic, "queueId": 0, "consumerGroup": "g", "timestamp": 0, "index": 0}
    await peer.call(code, {**fields, "count": 1})
    assert "request_failed" not in caplog.text
