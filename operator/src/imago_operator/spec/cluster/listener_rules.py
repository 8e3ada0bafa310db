"""The rules of a cluster's listeners that their bounds do not say."""

from __future__ import annotations

from itertools import permutations
from typing import Any, Final

from imago_operator.spec.schema.rule import Rule

_FIRSTS: Final = {"firstPort": 20, "firstGrpcPort": 10}
_INSIDE: Final = {"name", "type", "tls", "authentication", "perBroker", "serviceTemplate"}
_PORTS_END: Final = 65536


def _ports_are_apart(node: Any) -> bool:
    """Whether no port on the nodes is for SDKs and for other clients at once."""
    shards = node["brokers"]["shards"]
    for way in node.get("listeners", ()):
        first, of_sdks = way.get("firstNodePort"), way.get("firstGrpcNodePort")
        if None in (first, of_sdks):
            continue
        if first - 10 * shards < of_sdks < first + 20 * shards:
            return False
    return True


def _share_no_port(node: Any) -> bool:
    """Whether no port on the nodes is two listeners'."""
    shards = node["brokers"]["shards"]
    taken = [
        (number, way[first], way[first] + size * shards)
        for number, way in enumerate(node.get("listeners", ()))
        for first, size in (("firstNodePort", 20), ("firstGrpcNodePort", 10))
        if first in way
    ]
    pairs = permutations(taken, 2)
    return all(one[0] == two[0] or one[2] <= two[1] or two[2] <= one[1] for one, two in pairs)


def _told_ports_fit(node: Any) -> bool:
    """Whether all brokers' ports are ports, of which the last digit is the member's number."""
    shards = node["brokers"]["shards"]
    return all(
        way["perBroker"].get(name, 0) % 10 == 0
        and way["perBroker"].get(name, 0) + size * shards <= _PORTS_END
        for way in node.get("listeners", ())
        for name, size in _FIRSTS.items()
        if "perBroker" in way
    )


def _is_one_way_for_metaq(node: Any) -> bool:
    return sum("metaq" in way for way in node.get("listeners", ())) <= 1


def _ranges_are_of_managed(node: Any) -> bool:
    """Whether the sources of a managed ZooKeeper's clients are said, and no other's."""
    managed = node["zookeeper"].get("managed")
    ways = [way["metaq"] for way in node.get("listeners", ()) if "metaq" in way]
    return all(bool(way.get("zookeeperSourceRanges")) == (managed is not None) for way in ways)


def _zookeeper_is_plain(node: Any) -> bool:
    enforcing = node["zookeeper"].get("managed", {}).get("tls") == "Enforcing"
    return not enforcing or not any("metaq" in way for way in node.get("listeners", ()))


def _is_inside(node: Any) -> bool:
    if node["type"] != "Internal":
        return True
    added = (node.get("perBroker"), node.get("serviceTemplate", {}).get("metadata"))
    return not set(node) - _INSIDE and not any(map(_says, added))


def _says(part: Any) -> bool:
    return any(part.values()) if part else False


def _fits(name: str) -> str:
    first = f"l.perBroker.{name}"
    last = f"{first} + {_FIRSTS[name]} * self.brokers.shards <= {_PORTS_END}"
    return f"(!has({first}) || ({first} % 10 == 0 && {last}))"


def _apart(one: str, two: str) -> str:
    """Return that a port of listener l, and as many as it is the first of, is none of m's."""
    sizes = {"firstNodePort": 20, "firstGrpcNodePort": 10}
    return (
        f"(!has(l.{one}) || !has(m.{two})"
        f" || l.{one} + {sizes[one]} * self.brokers.shards <= m.{two}"
        f" || m.{two} + {sizes[two]} * self.brokers.shards <= l.{one})"
    )


_NODES, _SDKS = "firstNodePort", "firstGrpcNodePort"
RULES: Final[tuple[Rule, ...]] = (
    Rule(
        path="spec.listeners[]",
        cel="has(self.firstNodePort) == (self.type == 'NodePort')",
        holds=lambda node: ("firstNodePort" in node) == (node["type"] == "NodePort"),
        message="firstNodePort goes with type NodePort",
    ),
    Rule(
        path="spec.listeners[]",
        cel="!has(self.firstNodePort) || self.firstNodePort % 10 == 0",
        holds=lambda node: node.get("firstNodePort", 0) % 10 == 0,
        message="firstNodePort must be a multiple of 10",
    ),
    Rule(
        path="spec.listeners[]",
        cel="!has(self.firstGrpcNodePort) || (self.type == 'NodePort'"
        " && self.firstGrpcNodePort % 10 == 0)",
        holds=lambda node: (
            node.get("firstGrpcNodePort", 0) % 10 == 0
            and ("firstGrpcNodePort" not in node or node["type"] == "NodePort")
        ),
        message="firstGrpcNodePort goes with type NodePort, and must be a multiple of 10",
    ),
    Rule(
        path="spec",
        cel="!has(self.listeners) || self.listeners.all(l, !has(l.firstGrpcNodePort)"
        " || !has(l.firstNodePort)"
        " || l.firstGrpcNodePort >= l.firstNodePort + 20 * self.brokers.shards"
        " || l.firstGrpcNodePort + 10 * self.brokers.shards <= l.firstNodePort)",
        holds=_ports_are_apart,
        message="a listener's ports from firstGrpcNodePort on, ten for each shard, must not be"
        " among those from firstNodePort on, twenty for each shard",
    ),
    Rule(
        path="spec",
        cel="!has(self.listeners) || self.listeners.all(l, self.listeners.all(m, l.name == m.name"
        f" || ({_apart(_NODES, _NODES)} && {_apart(_NODES, _SDKS)} && {_apart(_SDKS, _SDKS)})))",
        holds=_share_no_port,
        message="two listeners have the same ports on the nodes: each has twenty for each shard"
        " from firstNodePort on, and ten from firstGrpcNodePort on",
    ),
    Rule(
        path="spec.listeners[]",
        cel="self.type != 'Internal' || (!has(self.advertisedHostTemplate)"
        " && !has(self.bootstrapHost) && !has(self.metaq)"
        " && !has(self.loadBalancerSourceRanges) && !has(self.admin)"
        " && !has(self.perBroker.firstPort) && !has(self.perBroker.firstGrpcPort)"
        " && (!has(self.perBroker.labels) || size(self.perBroker.labels) == 0)"
        " && (!has(self.perBroker.annotations) || size(self.perBroker.annotations) == 0)"
        " && (!has(self.serviceTemplate.metadata.labels)"
        " || size(self.serviceTemplate.metadata.labels) == 0)"
        " && (!has(self.serviceTemplate.metadata.annotations)"
        " || size(self.serviceTemplate.metadata.annotations) == 0))",
        holds=_is_inside,
        message="a listener of type Internal has only name, tls and authentication: its clients use"
        " the cluster's own Services (spec.brokers.template.service)",
    ),
    Rule(
        path="spec",
        cel="!has(self.listeners) || self.listeners.filter(l, l.type == 'Internal').size() <= 1",
        holds=lambda node: sum(way["type"] == "Internal" for way in node.get("listeners", ())) <= 1,
        message="one listener at most may be of type Internal: all inside have the same Services",
    ),
    Rule(
        path="spec.listeners[]",
        cel="!has(self.loadBalancerSourceRanges) || self.type == 'LoadBalancer'",
        holds=lambda node: "loadBalancerSourceRanges" not in node or node["type"] == "LoadBalancer",
        message="loadBalancerSourceRanges goes with type LoadBalancer",
    ),
    Rule(
        path="spec",
        cel=f"!has(self.listeners) || self.listeners.all(l, {' && '.join(map(_fits, _FIRSTS))})",
        holds=_told_ports_fit,
        message="perBroker's firstPort and firstGrpcPort must be multiples of 10 that leave twenty"
        " and ten ports up to 65535 for each shard",
    ),
    Rule(
        path="spec",
        cel="has(self.tls) || !has(self.listeners)"
        " || !self.listeners.exists(l, has(l.admin) && l.admin)",
        holds=lambda node: (
            "tls" in node or not any(way.get("admin") for way in node.get("listeners", ()))
        ),
        message="a listener with admin needs spec.tls: its token must not travel in the clear",
    ),
    Rule(
        path="spec",
        cel="!has(self.listeners) || self.listeners.filter(l, has(l.metaq)).size() <= 1",
        holds=_is_one_way_for_metaq,
        message="one listener at most may have metaq: ZooKeeper has one address of each broker",
    ),
    Rule(
        path="spec",
        cel="!has(self.listeners) || self.listeners.all(l, !has(l.metaq)"
        " || (has(l.metaq.zookeeperSourceRanges) && size(l.metaq.zookeeperSourceRanges) > 0)"
        " == has(self.zookeeper.managed))",
        holds=_ranges_are_of_managed,
        message="with a managed ZooKeeper a listener's metaq needs zookeeperSourceRanges, the"
        " networks whose clients reach it; with an external one it has none",
    ),
    Rule(
        path="spec",
        cel="!has(self.zookeeper.managed) || self.zookeeper.managed.tls != 'Enforcing'"
        " || !has(self.listeners) || !self.listeners.exists(l, has(l.metaq))",
        holds=_zookeeper_is_plain,
        message="a listener's metaq needs a ZooKeeper with a plain port: MetaQ's clients know no"
        " TLS, set zookeeper.managed.tls Permissive",
    ),
)
