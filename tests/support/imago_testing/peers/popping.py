"""POP as a client speaks it: requests, and the receipts that it puts together from answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.remoting.command import RemotingCommand

LONG_MS = 3_600_000


def pop_ext(queue_id: int = 0, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": queue_id,
        "maxMsgNums": 32,
        "invisibleTime": LONG_MS,
        "pollTime": 0,
        "bornTime": 0,
        "initMode": 0,
        "exp": "*",
        "expType": "TAG",
        "order": "false",
    }
    return {**fields, **more}


async def pop(peer: RemotingPeer, queue_id: int = 0, **more: object) -> RemotingCommand:
    return await peer.call(RequestCode.POP_MESSAGE, pop_ext(queue_id, **more))


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [message.body for message in decode_messages(answer.body)]


def receipts(answer: RemotingCommand) -> list[tuple[int, int, str]]:
    """Return queue, offset and receipt of each message, as clients put them together."""
    ext = answer.ext
    starts = dict(block.split(" ")[1:] for block in ext["startOffsetInfo"].split(";"))
    found = []
    for block in ext["msgOffsetInfo"].split(";"):
        retry, queue, offsets = block.split(" ")
        for offset in map(int, offsets.split(",")):
            text = (
                f"{starts[queue]} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} "
                f"{retry} broker {queue} {offset}"
            )
            found.append((int(queue), offset, text))
    return found


async def acknowledge(
    peer: RemotingPeer, receipt: tuple[int, int, str], **more: object
) -> RemotingCommand:
    queue_id, offset, text = receipt
    ext = {"consumerGroup": "g", "topic": "T", "queueId": queue_id, "offset": offset}
    return await peer.call(RequestCode.ACK_MESSAGE, {**ext, "extraInfo": text, **more})


async def postpone(
    peer: RemotingPeer, receipt: tuple[int, int, str], invisible_ms: int
) -> RemotingCommand:
    queue_id, offset, text = receipt
    ext = {"consumerGroup": "g", "topic": "T", "queueId": queue_id, "offset": offset}
    return await peer.call(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        {**ext, "extraInfo": text, "invisibleTime": invisible_ms},
    )


async def committed(peer: RemotingPeer, queue_id: int = 0) -> int:
    ext = {"consumerGroup": "g", "topic": "T", "queueId": queue_id}
    return int((await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)).ext["offset"])
