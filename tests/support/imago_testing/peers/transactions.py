"""What a producer of transactions does, frame by frame."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imago_testing.peers.remoting import pull_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.records.record import StoredMessage
    from imago_wire.remoting.command import RemotingCommand

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def half_properties(unique: str = "u", group: str = "P", more: str = "") -> str:
    return f"KEYS\x01k\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01{unique}\x02PGROUP\x01{group}\x02{more}"


async def half(
    peer: RemotingPeer, body: bytes, *, unique: str = "u", queue_id: int = 0, more: str = ""
) -> Half:
    properties = half_properties(unique, more=more)
    answer = await peer.put("T", body, queue_id=queue_id, properties=properties, f=4, a="P")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return Half(answer, unique)


class Half:
    """What a producer knows of its half message."""

    def __init__(self, answer: RemotingCommand, unique: str) -> None:
        self.unique = unique
        self.log_offset = int(answer.ext["msgId"][16:], 16)
        self.queue_offset = int(answer.ext["queueOffset"])
        self.answer = answer

    def header(self, outcome: int, **more: object) -> dict[str, object]:
        return {
            "producerGroup": "P",
            "tranStateTableOffset": self.queue_offset,
            "commitLogOffset": self.log_offset,
            "commitOrRollback": outcome,
            "fromTransactionCheck": "false",
            "msgId": self.unique,
            "transactionId": self.unique,
            **more,
        }


async def end(peer: RemotingPeer, one: Half, outcome: int, **more: object) -> RemotingCommand:
    return await peer.call(RequestCode.END_TRANSACTION, one.header(outcome, **more))


async def next_message(peer: RemotingPeer, topic: str, offset: int = 0) -> StoredMessage:
    answer = await peer.call(11, pull_ext(topic, offset, sysFlag=6))
    return decode_messages(answer.body)[0]


async def be_producer(peer: RemotingPeer, group: str = "P") -> None:
    beat = {"clientID": "c", "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}
    answer = await peer.call(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
    assert answer.code == ResponseCode.SUCCESS
