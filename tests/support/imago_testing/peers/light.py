"""Light queues (LMQ) as a client speaks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.records.record import StoredMessage
    from imago_wire.remoting.command import RemotingCommand

A, B = "%LMQ%a", "%LMQ%b"


def naming(names: str, more: str = "") -> str:
    return f"UNIQ_KEY\x01{'0' * 32}\x02{more}INNER_MULTI_DISPATCH\x01{names}\x02"


async def put(
    peer: RemotingPeer, body: bytes, names: str = f"{A},{B}", *, queue_id: int = 0, extra: str = ""
) -> RemotingCommand:
    return await peer.put("T", body, queue_id=queue_id, properties=naming(names, extra))


def offsets(messages: list[StoredMessage]) -> list[str]:
    return [message.properties["INNER_MULTI_QUEUE_OFFSET"] for message in messages]


def records(answer: RemotingCommand) -> list[bytes]:
    """Return the stored bytes of each message of an answer."""
    body, found, at = bytes(answer.body), [], 0
    for message in decode_messages(body):
        found.append(body[at : at + message.size])
        at += message.size
    return found


async def told(peer: RemotingPeer, entry: str) -> RemotingCommand:
    return await peer.call(RequestCode.UPDATE_BROKER_CONFIG, body=f"{entry}\n".encode())


async def end_half(peer: RemotingPeer, half: RemotingCommand, outcome: int) -> None:
    ended = await peer.call(
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": "producers",
            "tranStateTableOffset": half.ext["queueOffset"],
            "commitLogOffset": int(half.ext["msgId"][16:], 16),
            "commitOrRollback": outcome,
            "msgId": "0" * 32,
            "transactionId": "0" * 32,
        },
    )
    assert ended.code == ResponseCode.SUCCESS
