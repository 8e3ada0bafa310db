"""What the original tools tell brokers about a static topic, S."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_wire.remoting import fastjson
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.remoting.command import RemotingCommand

Runs = tuple[tuple[int, str, int, int], ...]
"""Of each: generation, broker, its queue, where it begins."""
HERE: Runs = ((0, "shard-0", 1, 0),)


def mapping(broker: str, hosted: Mapping[int, Runs], *, epoch: int = 1, total: int = 2) -> bytes:
    """Return a mapping as Java's tools write it: with bare numbers as keys."""
    queues: dict[str, Any] = {
        fastjson.BareKey(queue): [
            {
                "gen": generation,
                "bname": name,
                "queueId": queue_id,
                "logicOffset": begin,
                "startOffset": 0,
                "endOffset": -1,
                "timeOfStart": -1,
                "timeOfEnd": -1,
            }
            for generation, name, queue_id, begin in runs
        ]
        for queue, runs in hosted.items()
    }
    return fastjson.dump(
        {
            "topic": "S",
            "bname": broker,
            "epoch": epoch,
            "totalQueues": total,
            "scope": "__global__",
            "dirty": False,
            "currIdMap": {},
            "hostedQueues": queues,
        }
    )


async def told(
    peer: RemotingPeer, body: bytes, *, queues: int = 2, topic: str = "S", **more: object
) -> RemotingCommand:
    ext = {**fields(queues, topic), **more}
    return await peer.call(Code.UPDATE_AND_CREATE_STATIC_TOPIC, ext, body)


def fields(queues: int, topic: str) -> dict[str, object]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }
