"""What a shard is apart from who leads it: its members, and whether it takes anything new.

`/imago/<cluster>/shards/<k>`:

```
{"next":2,"members":{"<uuid>":{"replica":0,"metaq":"meta://h:p"}},"cordoned":false,"drained":false,
 "drain":"<request id, empty: not drained>","undrained":"<request id of the last one taken back>",
 "stays":false, "fenced":["<uuid>"]}
```

`fenced` is left out where it is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from imago_broker.cluster.znodes import decode, number, of
from imago_broker.model.registry.cluster import REPLICA_MAX
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RecordedMember:
    """A data folder that belongs, or once belonged, to a shard."""

    replica: int
    metaq_url: str
    """Where it was reachable last: whoever holds this address in MetaQ's tree is one of us."""


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """Members of a shard by uuid. Replica numbers are handed out once."""

    replica_next: int
    members: Mapping[str, RecordedMember]
    cordoned: bool = False
    """Whether it takes no new topics."""
    drained: bool = False
    """Whether nothing of value is left on it, so that its disks may go."""
    drain: str = ""
    """Request by which its topics are being moved away; "" for none."""
    undrained: str = ""
    """The last such request that was taken back: it may still be repeated by mistake."""
    stays: bool = False
    """Whether that request only closes the topics here, and opens them nowhere else."""
    fenced: frozenset[str] = frozenset()
    """Members by uuid that serve nobody, or are about to: each has not come back since."""

    def with_member(self, uuid: str, metaq_url: str, *, wanted: int = -1) -> ShardRecord:
        """The record after this data folder has shown up, perhaps for the first time.

        A new one gets the number it wants if nobody ever had that one.
        """
        known = self.members.get(uuid)
        replica = known.replica if known else self._number(wanted)
        if replica > REPLICA_MAX:
            raise WrongError(f"the shard has had {replica} data folders, that is the limit")
        members = {**self.members, uuid: RecordedMember(replica, metaq_url)}
        replica_next = max(self.replica_next, replica + 1)
        fenced = self.fenced - {uuid}
        return replace(self, replica_next=replica_next, members=members, fenced=fenced)

    def _number(self, wanted: int) -> int:
        if 0 <= wanted <= REPLICA_MAX and wanted not in self.replicas().values():
            return wanted
        return self.replica_next

    def replicas(self) -> Mapping[str, int]:
        """Replica number of each data folder, by uuid."""
        return {uuid: member.replica for uuid, member in self.members.items()}


def encode_shard(record: ShardRecord) -> bytes:
    members = {
        uuid: {"replica": member.replica, "metaq": member.metaq_url}
        for uuid, member in record.members.items()
    }
    return orjson.dumps(
        {
            "next": record.replica_next,
            "members": members,
            "cordoned": record.cordoned,
            "drained": record.drained,
            "drain": record.drain,
            "undrained": record.undrained,
            "stays": record.stays,
        }
        | ({"fenced": sorted(record.fenced)} if record.fenced else {})
    )


def decode_shard(path: str, data: bytes) -> ShardRecord:
    def read(value: dict[str, Any]) -> ShardRecord:
        number(path.rpartition("/")[2])
        members = {
            uuid: RecordedMember(of(int, member["replica"]), of(str, member["metaq"]))
            for uuid, member in value["members"].items()
        }
        replica_next = of(int, value["next"])
        if any(not 0 <= member.replica < replica_next for member in members.values()):
            raise WrongError("a replica number that was not handed out")
        return ShardRecord(
            replica_next,
            members,
            cordoned=of(bool, value.get("cordoned", False)),
            drained=of(bool, value.get("drained", False)),
            drain=of(str, value.get("drain", "")),
            undrained=of(str, value.get("undrained", "")),
            stays=of(bool, value.get("stays", False)),
            fenced=frozenset(of(str, uuid) for uuid in of(list, value.get("fenced", []))),
        )

    return decode(path, data, dict, read)
