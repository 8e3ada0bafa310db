"""Edits of a cluster's listeners that must be refused."""

from __future__ import annotations

from typing import Any, Final

from imago_testing.kubernetes.resource_edits import CLUSTER, rule, schema

_RANGES: Final = {"zookeeperSourceRanges": ["10.0.0.0/8"]}


def _nodes(name: str = "out", first: int = 30900, **said: Any) -> dict[str, Any]:
    return {"name": name, "type": "NodePort", "firstNodePort": first, **said}


def _balanced(name: str = "lb", **said: Any) -> dict[str, Any]:
    return {"name": name, "type": "LoadBalancer", **said}


def _inside(name: str = "in", **said: Any) -> dict[str, Any]:
    return {"name": name, "type": "Internal", **said}


def _ways(*ways: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"spec.listeners": list(ways), **more}


BAD_LISTENERS: Final = (
    rule(
        CLUSTER,
        "firstNodePort goes with type NodePort",
        {
            "spec.listeners": [
                {
                    "name": "out",
                    "type": "LoadBalancer",
                    "firstNodePort": 30000,
                    "advertisedHostTemplate": "{pod}.example.org",
                }
            ]
        },
    ),
    rule(
        CLUSTER,
        "firstNodePort goes with type NodePort",
        {"spec.listeners": [{"name": "out", "type": "NodePort"}]},
    ),
    rule(
        CLUSTER,
        "firstNodePort must be a multiple of 10",
        {"spec.listeners": [{"name": "out", "type": "NodePort", "firstNodePort": 30005}]},
    ),
    *(
        rule(
            CLUSTER,
            "firstGrpcNodePort goes with type NodePort",
            {"spec.listeners": [{"name": "out", "firstGrpcNodePort": first, **kind}]},
        )
        for first, kind in (
            (31005, {"type": "NodePort", "firstNodePort": 30000}),
            (31000, {"type": "LoadBalancer", "advertisedHostTemplate": "{pod}.example.org"}),
        )
    ),
    *(
        rule(
            CLUSTER,
            "must not be among those from firstNodePort on",
            {
                "spec.brokers.shards": 2,
                "spec.listeners": [
                    {
                        "name": "out",
                        "type": "NodePort",
                        "firstNodePort": 30500,
                        "firstGrpcNodePort": first,
                    }
                ],
            },
        )
        for first in (30490, 30500, 30530)
    ),
    *(
        rule(CLUSTER, "two listeners have the same ports", _ways(_nodes(), other))
        for other in (
            _nodes("two", 30930),
            _nodes("two", 30880),
            _nodes("two", 31900, firstGrpcNodePort=30910),
        )
    ),
    *(
        rule(CLUSTER, "type Internal has only name", _ways(_inside(**said)))
        for said in (
            {"advertisedHostTemplate": "{pod}.example.org"},
            {"bootstrapHost": "mq.example.org"},
            {"metaq": _RANGES},
            {"perBroker": {"firstPort": 10910}},
            {"perBroker": {"annotations": {"a": "b"}}},
            {"serviceTemplate": {"metadata": {"labels": {"a": "b"}}}},
        )
    ),
    rule(CLUSTER, "firstNodePort goes with type NodePort", _ways(_inside(firstNodePort=30900))),
    rule(CLUSTER, "one listener at most may be of type Internal", _ways(_inside(), _inside("b"))),
    rule(
        CLUSTER,
        "loadBalancerSourceRanges goes with",
        _ways(_nodes(loadBalancerSourceRanges=["10.0.0.0/8"])),
    ),
    rule(CLUSTER, "type Internal has only name", _ways(_inside(admin=True)) | {"spec.tls": {}}),
    rule(CLUSTER, "a listener with admin needs spec.tls", _ways(_balanced(admin=True))),
    *(
        rule(CLUSTER, "firstPort and firstGrpcPort must be", _ways(_balanced(perBroker=told)))
        for told in ({"firstPort": 10911}, {"firstPort": 65520}, {"firstGrpcPort": 65530})
    ),
    rule(
        CLUSTER,
        "one listener at most may have metaq",
        _ways(_nodes(metaq=_RANGES), _balanced(metaq=_RANGES)),
    ),
    rule(CLUSTER, "metaq needs zookeeperSourceRanges", _ways(_balanced(metaq={}))),
    rule(
        CLUSTER,
        "with an external one it has none",
        _ways(_balanced(metaq=_RANGES))
        | {"spec.zookeeper": {"external": {"servers": ["zk-0.zk:2181"]}}},
    ),
    rule(
        CLUSTER,
        "needs a ZooKeeper with a plain port",
        _ways(_balanced(metaq=_RANGES)) | {"spec.zookeeper.managed.tls": "Enforcing"},
    ),
    schema(CLUSTER, "spec.listeners", _ways(*(_balanced(f"l{number}") for number in range(7)))),
    schema(CLUSTER, "spec.listeners[0].type", _ways({"name": "out", "type": "Ingress"})),
    schema(
        CLUSTER,
        "spec.listeners[0].perBroker.firstPort",
        _ways(_balanced(perBroker={"firstPort": 1})),
    ),
    schema(
        CLUSTER,
        "spec.listeners[0].loadBalancerSourceRanges[0]",
        _ways(_balanced(loadBalancerSourceRanges=["everybody"])),
    ),
    schema(
        CLUSTER,
        "spec.listeners[0].advertisedHostTemplate",
        _ways(_balanced(advertisedHostTemplate="{zone}.example.org")),
    ),
)
