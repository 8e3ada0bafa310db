"""kill -9 of a broker: each message for light queues is in all of its queues, or in none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.processes.broker import broker_process
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"rocketmq": {"light_queues": True}}
LIGHT = ("%LMQ%a", "%LMQ%b")
AT_ONCE = 300


def ext() -> dict[str, object]:
    names = f"INNER_MULTI_DISPATCH\x01{','.join(LIGHT)}\x02"
    return send_ext("T", properties="UNIQ_KEY\x01" + "0" * 32 + "\x02" + names)


async def stored(peer: RemotingPeer, topic: str) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while True:
        answer = await peer.pull(topic, offset, maxMsgNums=1024)
        if answer.code != ResponseCode.SUCCESS:
            return found
        found += [message.body for message in await peer.messages(topic, offset, maxMsgNums=1024)]
        offset = int(answer.ext["nextBeginOffset"])


async def test_killed_broker_has_each_message_in_all_its_queues(tmp_path: Path) -> None:
    confirmed: set[bytes] = set()
    for life in range(3):
        with broker_process(tmp_path, SETTINGS) as broker:
            peer = await RemotingPeer.connect(broker.rocketmq)
            if life:
                messages = await stored(peer, "T")
                assert confirmed <= set(messages)
                for light in LIGHT:
                    assert await stored(peer, light) == messages
            bodies = [b"%d-%d" % (life, number) for number in range(AT_ONCE)]
            opaques = {peer.send(310, ext(), body): body for body in bodies}
            for opaque in list(opaques)[: AT_ONCE // 3]:
                assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS
                confirmed.add(opaques[opaque])
            broker.server.kill()
            await asyncio.wait_for(peer.closed(), 60)
            await peer.close()
