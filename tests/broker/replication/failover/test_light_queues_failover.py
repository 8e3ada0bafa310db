"""Masters are killed while messages go to light queues: none is in one of its queues alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ClientConfig, ClientError, Message
from imago_testing.clusters.shard_processes import TOPIC
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_testing.clusters.shard_processes import Members
    from imago_wire.records.record import StoredMessage

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
A, B = "%LMQ%a", "%LMQ%b"
NAMES = {"INNER_MULTI_DISPATCH": f"{A},{B}"}
COUNT, SENDERS = 300, 8


async def stored(peer: RemotingPeer, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    offset = 0
    while True:
        answer = await peer.pull(topic, offset, queueId=queue_id, maxMsgNums=1024)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        found += await peer.messages(topic, offset, queueId=queue_id, maxMsgNums=1024)
        offset = int(answer.ext["nextBeginOffset"])


async def test_killed_master_leaves_no_part_of_a_message(members: Members) -> None:
    for number in range(3):
        members.start(number)
        await members.serve(number)
    config = ClientConfig(bootstrap=tuple(members.bootstrap.split(",")), route_age_max_s=1.0)
    confirmed: set[bytes] = set()

    async with Client(config) as client:
        leader = await members.leader(client)
        producer, half_way = client.producer(), asyncio.Event()

        async def send(share: int) -> None:
            for number in range(share, COUNT, SENDERS):
                body = b"%04d" % number
                while body not in confirmed:
                    try:
                        await producer.send(Message(TOPIC, body, properties=NAMES))
                        confirmed.add(body)
                    except ClientError:
                        await asyncio.sleep(0.1)
                if len(confirmed) > COUNT // 2:
                    half_way.set()

        async with asyncio.TaskGroup() as tasks:
            for share in range(SENDERS):
                tasks.create_task(send(share))
            await half_way.wait()
            members.processes[leader].kill()  # with messages on their way
        now = await members.leader(client, but=leader)
        peer = await RemotingPeer.connect(members.bases[now] + 3)
        messages = [each for queue in (0, 1) for each in await stored(peer, TOPIC, queue)]
        in_a, in_b = await stored(peer, A), await stored(peer, B)
        await peer.close()
    assert confirmed <= {message.body for message in messages}
    assert sorted(one.physical_offset for one in messages) == [one.physical_offset for one in in_a]
    assert in_a == in_b
