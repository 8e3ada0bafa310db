"""kill -9 of a broker while messages are out by POP: nothing is lost, given early or forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_testing.peers.remoting import RemotingPeer
from imago_testing.processes.broker import broker_process
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from pathlib import Path

    from imago_wire.remoting.command import RemotingCommand

INVISIBLE_MS = 6000


async def pop(peer: RemotingPeer, poll_ms: int = 0) -> RemotingCommand:
    ext = {"consumerGroup": "g", "topic": "T", "queueId": 0, "maxMsgNums": 8, "initMode": 0}
    times = {"invisibleTime": INVISIBLE_MS, "pollTime": poll_ms, "bornTime": 0}
    return await peer.call(RequestCode.POP_MESSAGE, {**ext, **times})


async def test_killed_broker_keeps_what_is_out_and_what_is_done(tmp_path: Path) -> None:
    with broker_process(tmp_path, {}) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq)
        for number in range(8):
            await peer.put("T", b"%d" % number)
        taken = await pop(peer)
        receipt = f"0 {taken.ext['popTime']} {INVISIBLE_MS} 0 0 b 0"
        for offset in (6, 0, 3):
            ext = {"consumerGroup": "g", "topic": "T", "queueId": 0, "offset": offset}
            text = f"{receipt} {offset}"
            done = await peer.call(RequestCode.ACK_MESSAGE, {**ext, "extraInfo": text})
            assert done.code == ResponseCode.SUCCESS
        await peer.close()
        broker.server.kill()
    with broker_process(tmp_path, {}) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq)
        back = await pop(peer, poll_ms=60_000)
        messages = decode_messages(back.body)
        assert [message.queue_offset for message in messages] == [1, 2, 4, 5, 7]
        assert {message.reconsume_times for message in messages} == {1}
        assert int(back.ext["popTime"]) >= int(taken.ext["popTime"]) + INVISIBLE_MS
        await peer.close()
