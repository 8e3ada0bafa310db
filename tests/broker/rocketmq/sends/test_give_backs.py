"""Messages given back are stored where their group reads them, or refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.app import Broker
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.peers.admin import Admin
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from imago_broker.config import BrokerConfig

BACK = RequestCode.CONSUMER_SEND_MSG_BACK


async def put_group(broker: Broker, name: str, **settings: object) -> tuple[int, dict[str, str]]:
    """Make a group over the admin interface."""
    async with aiohttp.ClientSession() as session:
        return await Admin(session, broker).call("PUT", f"/admin/v1/groups/{name}", settings)


@pytest.mark.parametrize("queues", [-3, 1025, 70_000, True, "3", 1.5, None, [3]])
async def test_queues_for_retries_that_cannot_be_are_refused_by_every_way_in(
    peer: RemotingPeer, broker: Broker, queues: object
) -> None:
    """A message given back to such a group would be in no topic, or could never be given back."""
    status, answer = await put_group(broker, "g", retry_queues=queues)
    assert (status, "retry_queues" in answer["message"]) == (400, True)
    body = json.dumps({"groupName": "g", "retryQueueNums": queues}).encode()
    if isinstance(queues, int) and not isinstance(queues, bool):  # others are null, or are read
        for code, sent in ((200, body), (225, b'{"groupConfigList":[' + body + b"]}")):
            told = await peer.call(code, {}, sent)
            assert (told.code, "retry" in (told.remark or "")) == (
                ResponseCode.INVALID_PARAMETER,
                True,
            )
    assert broker.groups.get("g") is None


async def test_what_is_given_back_is_found_after_a_group_got_more_queues_for_retries(
    peer: RemotingPeer, broker: Broker
) -> None:
    """The topic of its retries stays as it was made: more of them are queues that nobody reads."""
    assert (await put_group(broker, "g", retry_queues=1))[0] == 201
    await peer.put("T", b"m")
    (message,) = await peer.messages("T")
    back = {"offset": message.physical_offset, "group": "g", "delayLevel": 1}
    assert (await peer.call(BACK, back)).code == ResponseCode.SUCCESS
    assert (await put_group(broker, "g", retry_queues=1024))[0] == 200
    for _ in range(8):
        assert (await peer.call(BACK, back)).code == ResponseCode.SUCCESS
    parked = await peer.messages("SCHEDULE_TOPIC_XXXX", queueId=0)
    assert {copy.properties["REAL_QID"] for copy in parked} == {"0"}
    assert len(parked) == 9


@pytest.mark.parametrize(("topic", "level"), [("%RETRY%g", 1), ("%DLQ%g", -1)])
async def test_what_is_given_back_where_nobody_would_read_it_is_refused(
    peer: RemotingPeer, broker: Broker, topic: str, level: int
) -> None:
    await put_group(broker, "g")
    broker.topics.create_or_update(TopicConfig(name=topic, read_queues=1, write_queues=1))
    nowhere = TopicConfig(name=topic, read_queues=0, write_queues=0)
    broker.topics.create_or_update(nowhere, hide_messages=True)
    await peer.put("T", b"m")
    (message,) = await peer.messages("T")
    back = {"offset": message.physical_offset, "group": "g", "delayLevel": level}
    answer = await peer.call(BACK, back)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "no queue" in (answer.remark or "")


async def test_a_group_from_before_is_read_within_bounds(
    config: BrokerConfig,
) -> None:
    """Logs of former versions hold what was never checked."""
    broker = Broker(config)
    await broker.start()
    for name, queues in (("few", -3), ("many", 70_000)):
        stored = GroupConfig(name=name).to_json() | {"retry_queues": queues}
        broker.store.put_meta([("group", name, stored)])
    await broker.stop()
    again = Broker(config)
    await again.start()
    try:
        peer = await RemotingPeer.connect(again.rocketmq_port)
        await peer.put("T", b"m")
        (message,) = await peer.messages("T")
        for name, queues in (("few", 1), ("many", 1024)):
            found = again.groups.get(name)
            assert found is not None
            assert found.retry_queues == queues
            back = {"offset": message.physical_offset, "group": name, "delayLevel": 1}
            assert (await peer.call(BACK, back)).code == ResponseCode.SUCCESS
        assert len(await peer.messages("SCHEDULE_TOPIC_XXXX", queueId=0)) == 2
        await peer.close()
    finally:
        await again.stop()


@pytest.mark.parametrize(("size", "made"), [(248, True), (249, False)])
async def test_a_group_too_long_for_a_topic_of_its_retries_is_not_made(
    broker: Broker, size: int, made: bool
) -> None:
    assert (await put_group(broker, "g" * size))[0] == (201 if made else 400)
