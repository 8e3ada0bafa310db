"""The node that says who leads a shard: `/imago/<cluster>/shards/<k>/state`.

```
{"leader":"<uuid>","incarnation":<czxid>,"epoch":7,"inSync":{"<uuid>":<czxid>,…},
 "former":{},"unclean":false,"cause":"…","at":<ms>,
 "history":[{"epoch":6,"leader":"<uuid>","at":<ms>,"cause":"…","unclean":false},…]}
```

`leader` is null where nobody leads. The node's version is the guard of every change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from imago_broker.cluster.znodes import decode, number, of
from imago_broker.model.registry.shard import Election, Member, ShardState

if TYPE_CHECKING:
    from imago_broker.cluster.tree import Node


def encode_state(state: ShardState) -> bytes:
    """Return the node's content; the version is not part of it."""
    leader = state.leader
    return orjson.dumps(
        {
            "leader": leader.uuid if leader else None,
            "incarnation": leader.incarnation if leader else 0,
            "epoch": state.epoch,
            "inSync": {member.uuid: member.incarnation for member in state.in_sync},
            "former": {member.uuid: member.incarnation for member in state.former},
            "unclean": state.unclean,
            "cause": state.cause,
            "at": state.at_ms,
            "history": [
                {
                    "epoch": election.epoch,
                    "leader": election.leader,
                    "at": election.at_ms,
                    "cause": election.cause,
                    "unclean": election.unclean,
                }
                for election in state.history
            ],
        }
    )


def decode_state(path: str, node: Node) -> ShardState:
    """Read the node; GarbageError names it when it cannot be understood."""

    def read(value: dict[str, Any]) -> ShardState:
        number(path.split("/")[-2])
        leader = value["leader"]
        return ShardState(
            leader=None
            if leader is None
            else Member(of(str, leader), of(int, value["incarnation"])),
            epoch=value["epoch"],
            in_sync=_members(value["inSync"]),
            former=_members(value.get("former", {})),
            unclean=of(bool, value["unclean"]),
            cause=value["cause"],
            at_ms=value["at"],
            history=tuple(_election(election) for election in of(list, value["history"])),
            version=node.version,
        )

    return decode(path, node.data, dict, read)


def _members(value: Any) -> tuple[Member, ...]:
    found = sorted(of(dict, value).items())
    return tuple(Member(uuid, of(int, incarnation)) for uuid, incarnation in found)


def _election(value: Any) -> Election:
    election = of(dict, value)
    return Election(
        epoch=election["epoch"],
        leader=election["leader"],
        at_ms=election["at"],
        cause=election["cause"],
        unclean=of(bool, election["unclean"]),
    )
