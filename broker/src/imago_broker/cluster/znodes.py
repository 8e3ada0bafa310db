"""Paths and payloads of the registry `/imago/<cluster>`, to values and back.

```
/imago/<cluster>/id                       {"format":1,"id":…,"metaqRoot":"/meta","brokerIdBase":0},
                                          from level 2 on {"format":2,"featureLevel":2,…}
                /operator                 {"epoch":0}
                /pipelines/<name>         which run may write: `pipelines`
                /shards/<k>               members, cordoned, drained: `shard_record`
                /shards/<k>/state         leadership of the shard: `state_node`
                /brokers/<k>-<replica>    one live broker; ephemeral, its czxid is the incarnation
                /topics/<00…63>           {"<topic>":{"shards":{"<k>":[write,read,perm]},…},…}
                /namesrv/kv               {"<namespace>":{"<key>":"<value>"}}
                /namesrv/wiped            ["<brokerName>",…]
                /namesrv/foreign/<hash>   one foreign broker; ephemeral, deflated
```

Topics share 64 nodes by a hash of their name: a cluster of ten thousand topics is read, watched
and written in 64 steps, and one node stays far below ZooKeeper's limit of 1 MiB.

What another process wrote is untrusted input: decoders raise `GarbageError` with the path and the
reason, and never anything else. Members that this version does not know are ignored.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from imago_broker.cluster.listener_nodes import listeners_json, listeners_of
from imago_broker.cluster.tree import NODE_BYTES_MAX
from imago_broker.model import feature_level
from imago_broker.model.registry.cluster import (
    BrokerRecord,
    ForeignBroker,
    Role,
    ShardQueues,
    TopicPlacement,
)
from imago_wire.errors import WrongError, WrongKindError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BUCKETS = 64
FORMAT = 2
"""Of `/id`: 1 up to feature level 1. Version 0.1 refuses any other, and so each higher level."""
FOREIGN_BYTES_MAX = 16 << 20
"""Of a foreign broker's table once it is inflated."""

T = TypeVar("T")


class GarbageError(WrongError):
    """A node holds what cannot be understood."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What a cluster is from its first start on."""

    cluster_id: str
    metaq_root: str
    broker_id_base: int
    feature_level: int = feature_level.FIRST


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things stand below the root of one cluster."""

    cluster: str

    @property
    def root(self) -> str:
        return f"/imago/{self.cluster}"

    @property
    def identity(self) -> str:
        return f"{self.root}/id"

    @property
    def brokers(self) -> str:
        return f"{self.root}/brokers"

    @property
    def kv(self) -> str:
        return f"{self.root}/namesrv/kv"

    @property
    def wiped(self) -> str:
        return f"{self.root}/namesrv/wiped"

    @property
    def foreigners(self) -> str:
        return f"{self.root}/namesrv/foreign"

    @property
    def operator(self) -> str:
        return f"{self.root}/operator"

    @property
    def pipelines(self) -> str:
        return f"{self.root}/pipelines"

    def pipeline(self, name: str) -> str:
        return f"{self.pipelines}/{name}"

    @property
    def shards(self) -> str:
        return f"{self.root}/shards"

    def shard(self, shard: int) -> str:
        return f"{self.shards}/{shard}"

    def state(self, shard: int) -> str:
        return f"{self.shard(shard)}/state"

    def broker(self, shard: int, replica: int) -> str:
        return f"{self.brokers}/{shard}-{replica}"

    def bucket(self, topic: str) -> str:
        return self._bucket(zlib.crc32(topic.encode()) % BUCKETS)

    def buckets(self) -> list[str]:
        return [self._bucket(number) for number in range(BUCKETS)]

    def _bucket(self, number: int) -> str:
        return f"{self.root}/topics/{number:02d}"

    def foreign(self, key: tuple[str, str, int], holder: str) -> str:
        # The names come from a peer and may hold anything, a slash too.
        text = repr((key, holder))
        return f"{self.foreigners}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def skeleton(self) -> list[tuple[str, bytes]]:
        """The persistent nodes that must exist, parents first."""
        folders = ["/imago", self.root, self.shards, self.brokers, self.pipelines]
        folders += [f"{self.root}/topics", f"{self.root}/namesrv", self.foreigners]
        nodes = [(path, b"") for path in folders]
        nodes += [(path, b"{}") for path in self.buckets()]
        return [*nodes, (self.kv, b"{}"), (self.wiped, b"[]"), (self.operator, encode_epoch(0))]


def encode_identity(identity: ClusterIdentity) -> bytes:
    level = identity.feature_level
    first = level == feature_level.FIRST
    return orjson.dumps(
        {
            "format": 1 if first else FORMAT,
            "id": identity.cluster_id,
            "metaqRoot": identity.metaq_root,
            "brokerIdBase": identity.broker_id_base,
        }
        | ({} if first else {"featureLevel": level})
    )


def decode_identity(path: str, data: bytes) -> ClusterIdentity:
    def read(value: dict[str, Any]) -> ClusterIdentity:
        if value["format"] not in (1, FORMAT):
            raise WrongError(
                f"format {value['format']!r:.20}, this version knows {FORMAT}: start the version"
                " that wrote it, or a later one"
            )
        level = of(int, value["featureLevel"]) if value["format"] == FORMAT else feature_level.FIRST
        if not feature_level.FIRST <= level <= feature_level.LEVEL_MAX:
            raise WrongError(f"feature level {level}")
        return ClusterIdentity(
            of(str, value["id"]), of(str, value["metaqRoot"]), of(int, value["brokerIdBase"]), level
        )

    return decode(path, data, dict, read)


def encode_epoch(epoch: int) -> bytes:
    return orjson.dumps({"epoch": epoch})


def decode_epoch(path: str, data: bytes) -> int:
    def read(value: dict[str, Any]) -> int:
        if (epoch := of(int, value["epoch"])) < 0:
            raise WrongError(f"epoch {epoch} is negative")
        return epoch

    return decode(path, data, dict, read)


def encode_broker(record: BrokerRecord) -> bytes:
    return orjson.dumps(
        {
            "uuid": record.uuid,
            "host": record.host,
            "metaq": record.metaq,
            "rocketmq": record.rocketmq,
            "fast": record.fast,
            "replication": record.replication,
            "admin": record.admin,
            "brokerName": record.broker_name,
            "role": record.role,
            "unclean": record.unclean,
            "logEpoch": record.log_epoch,
            "logEnd": record.log_end,
            "damaged": record.damaged,
            "full": record.full,
            "crowded": record.crowded,
            "slot": record.slot,
            "problem": record.problem,
            "epochSeen": record.epoch_seen,
            "zone": record.zone,
            "addresses": record.addresses,
            "clientHost": record.client_host,
            "clientMetaq": record.client_metaq,
            "clientRocketmq": record.client_rocketmq,
            "grpc": record.grpc,
            "clientGrpc": record.client_grpc,
            "listeners": listeners_json(record.listeners),
            "metaqListener": record.metaq_listener,
            "featureLevel": record.feature_level,
        }
    )


def decode_broker(path: str, data: bytes, incarnation: int) -> BrokerRecord:
    def read(value: dict[str, Any]) -> BrokerRecord:
        shard, replica = path.rsplit("/", 1)[1].split("-")
        return BrokerRecord(
            shard=number(shard),
            replica=number(replica),
            incarnation=incarnation,
            uuid=value["uuid"],
            host=value["host"],
            metaq=value["metaq"],
            rocketmq=value["rocketmq"],
            fast=value["fast"],
            replication=value["replication"],
            admin=value["admin"],
            broker_name=value["brokerName"],
            role=Role(value["role"]),
            unclean=of(bool, value.get("unclean", False)),
            log_epoch=value.get("logEpoch", 0),
            log_end=value.get("logEnd", 0),
            damaged=of(bool, value.get("damaged", False)),
            full=of(bool, value.get("full", False)),
            crowded=of(bool, value.get("crowded", False)),
            slot=value.get("slot", -1),
            problem=of(str, value.get("problem", "")),
            epoch_seen=value.get("epochSeen", 0),
            zone=of(str, value.get("zone", "")),
            addresses=tuple(of(str, one) for one in value.get("addresses", ())),
            client_host=of(str, value.get("clientHost", "")),
            client_metaq=value.get("clientMetaq", 0),
            client_rocketmq=value.get("clientRocketmq", 0),
            grpc=value.get("grpc", 0),
            client_grpc=value.get("clientGrpc", 0),
            listeners=listeners_of(value.get("listeners", ())),
            metaq_listener=of(str, value.get("metaqListener", "")),
            feature_level=of(int, value.get("featureLevel", feature_level.FIRST)),
        )

    return decode(path, data, dict, read)


def encode_topics(topics: Mapping[str, TopicPlacement]) -> bytes:
    data = orjson.dumps({name: _topic_json(topic) for name, topic in topics.items()})
    if len(data) > NODE_BYTES_MAX:
        raise WrongError(f"{len(data)} bytes of topics in one node, at most {NODE_BYTES_MAX}")
    return data


def decode_topics(path: str, data: bytes) -> dict[str, TopicPlacement]:
    def read(value: dict[str, Any]) -> dict[str, TopicPlacement]:
        return {name: _topic(name, topic) for name, topic in value.items()}

    return decode(path, data, dict, read)


def encode_kv(kv: Mapping[str, Mapping[str, str]]) -> bytes:
    return _sized({namespace: dict(entries) for namespace, entries in kv.items()})


def decode_kv(path: str, data: bytes) -> dict[str, dict[str, str]]:
    def read(value: dict[str, Any]) -> dict[str, dict[str, str]]:
        return {namespace: _texts(entries) for namespace, entries in value.items()}

    return decode(path, data, dict, read)


def encode_wiped(names: frozenset[str]) -> bytes:
    return _sized(sorted(names))


def decode_wiped(path: str, data: bytes) -> frozenset[str]:
    return decode(path, data, list, lambda names: frozenset(of(str, name) for name in names))


def encode_foreign(broker: ForeignBroker) -> bytes:
    plain = orjson.dumps(
        {
            "cluster": broker.cluster,
            "brokerName": broker.broker_name,
            "brokerId": broker.broker_id,
            "address": broker.address,
            "haAddress": broker.ha_address,
            "zone": broker.zone,
            "dataVersion": dict(broker.data_version),
            "topics": {name: dict(topic) for name, topic in broker.topics.items()},
            "filterServers": broker.filter_servers,
            "actingMaster": broker.acting_master,
        }
    )
    data = zlib.compress(plain)
    if len(data) > NODE_BYTES_MAX or len(plain) > FOREIGN_BYTES_MAX:
        raise WrongError(f"{len(plain)} bytes of foreign broker, {len(data)} deflated: too many")
    return data


def decode_foreign(path: str, data: bytes) -> ForeignBroker:
    def read(value: dict[str, Any]) -> ForeignBroker:
        return ForeignBroker(
            cluster=value["cluster"],
            broker_name=value["brokerName"],
            broker_id=value["brokerId"],
            address=value["address"],
            ha_address=of(str, value["haAddress"]),
            zone=of(str, value["zone"]),
            data_version=of(dict, value["dataVersion"]),
            topics={name: of(dict, topic) for name, topic in value["topics"].items()},
            filter_servers=tuple(of(str, server) for server in value["filterServers"]),
            acting_master=of(bool, value["actingMaster"]),
        )

    return decode(path, _inflated(path, data), dict, read)


def _topic_json(topic: TopicPlacement) -> dict[str, object]:
    return {
        "shards": {str(shard): list(queues) for shard, queues in sorted(topic.shards.items())},
        "sysFlag": topic.sys_flag,
        "order": topic.order,
        "dual": topic.dual,
        "attributes": dict(topic.attributes),
    }


def _topic(name: str, value: dict[str, Any]) -> TopicPlacement:
    shards = {number(shard): ShardQueues(*queues) for shard, queues in value["shards"].items()}
    return TopicPlacement(
        name=name,
        shards=shards,
        sys_flag=of(int, value["sysFlag"]),
        order=of(bool, value["order"]),
        dual=of(bool, value["dual"]),
        attributes=_texts(value["attributes"]),
    )


def decode(path: str, data: bytes, kind: type, read: Callable[[Any], T]) -> T:
    """Read one node's JSON; GarbageError for whatever is wrong with it."""
    try:
        return read(of(kind, orjson.loads(data)))
    except KeyError as error:
        raise GarbageError(path, f"member {error.args[0]!r} is missing") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise GarbageError(path, str(error)[:200]) from error


def _inflated(path: str, data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, FOREIGN_BYTES_MAX)
    except zlib.error as error:
        raise GarbageError(path, str(error)) from error
    if not inflater.eof:
        raise GarbageError(path, "cut off, or more than is allowed")
    return plain


def _sized(value: object) -> bytes:
    data = orjson.dumps(value)
    if len(data) > NODE_BYTES_MAX:
        raise WrongError(f"{len(data)} bytes, a node holds at most {NODE_BYTES_MAX}")
    return data


def of(kind: type[T], value: Any) -> T:
    """Return the value if it is exactly of this kind; TypeError."""
    if type(value) is not kind:
        raise WrongKindError(f"{value!r:.40} where {kind.__name__} belongs")
    return value


def _texts(value: Any) -> dict[str, str]:
    return {key: of(str, text) for key, text in of(dict, value).items()}


def number(text: str) -> int:
    """Return what a node's name says, written as we write numbers; ValueError."""
    # int() would take "+1", "1_0" and Arabic digits, and two names must not mean one shard.
    if not (text.isascii() and text.isdigit()) or str(int(text)) != text:
        raise WrongError(f"{text!r:.40} is no number")
    return int(text)
