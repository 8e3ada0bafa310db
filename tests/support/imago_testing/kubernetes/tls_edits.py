"""Edits of a cluster's TLS that must be refused."""

from __future__ import annotations

from typing import Any, Final

from imago_testing.kubernetes.resource_edits import CLUSTER, REMOVED, edit, rule, schema


def _tls(**said: Any) -> dict[str, Any]:
    return {"spec.tls": said}


def _external(**more: Any) -> dict[str, Any]:
    return {"spec.zookeeper": {"external": {"servers": ["zk-0.zk:2281"], **more}}}


def _listener(**said: Any) -> dict[str, Any]:
    return {"name": "out", "type": "NodePort", "firstNodePort": 30900, **said}


_SHOWN: Final = {"type": "Tls"}
_USER: Final = {"auth": {"secretName": "registry"}}
BAD_REGISTRIES: Final = (
    edit(CLUSTER, "set auth.protect false first", _external(), _external(**_USER)),
    edit(CLUSTER, "set auth.protect false before auth goes", _external(**_USER), _external()),
    schema(CLUSTER, "spec.zookeeper.external.auth.secretName", _external(auth={"secretName": ""})),
    schema(CLUSTER, "spec.zookeeper.external.clientServers[0]", _external(clientServers=["zk"])),
)
BAD_TLS: Final = (
    rule(CLUSTER, "tokenReview needs type Simple", {"spec.authorization": {"tokenReview": True}}),
    rule(CLUSTER, "secretName goes with mode", _tls(ca={"mode": "UserProvided"})),
    rule(CLUSTER, "secretName goes with mode", _tls(ca={"secretName": "mine"})),
    rule(CLUSTER, "secretName goes with mode", _tls(ca={"mode": "CertManager"})),
    rule(CLUSTER, "secretName goes with mode", _tls(ca={"issuerRef": {"name": "a"}})),
    rule(CLUSTER, "renewBefore must be shorter", _tls(validity="48h", renewBefore="48h")),
    rule(CLUSTER, "renewBefore must be shorter", _tls(ca={"validity": "48h"})),
    rule(CLUSTER, "validity must be from", _tls(validity="1h", renewBefore="1m")),
    rule(CLUSTER, "validity must be from", _tls(ca={"validity": "23h", "renewBefore": "1m"})),
    rule(CLUSTER, "overlap must be from", _tls(ca={"overlap": "0s"})),
    rule(
        CLUSTER,
        "a listener with tls needs spec.tls",
        {"spec.listeners": [_listener(tls=True)]},
    ),
    *(
        rule(CLUSTER, "certificates name no node", _tls() | {"spec.listeners": [said]})
        for said in (
            _listener(),
            _listener(bootstrapHost="mq.example.org"),
            _listener(advertisedHostTemplate="{node}.example.org"),
            {"name": "out", "type": "LoadBalancer", "advertisedHostTemplate": "{pod}.example.org"},
            {"name": "out", "type": "LoadBalancer", "bootstrapHost": "mq.example.org"},
        )
    ),
    *(
        rule(
            CLUSTER, "only tls.client_auth none or optional", _tls() | {"spec.brokers.config": said}
        )
        for said in (
            {"tls.admin": "disabled"},
            {"tls.client_auth": "required"},
            {"tls.mode": "disabled"},
            {"metaq.stat": "true", "tls.ca_file": "/mine/ca.crt"},
        )
    ),
    *(
        rule(CLUSTER, "only tls.client_auth none or optional, with", said)
        for said in (
            _tls(clientsCa={}) | {"spec.brokers.config": {"tls.client_auth": "none"}},
            _tls(clientsCa={}) | {"spec.brokers.config": {"tls.client_ca_file": "/mine"}},
        )
    ),
    rule(CLUSTER, "secretName goes with mode User", _tls(clientsCa={"mode": "UserProvided"})),
    rule(CLUSTER, "secretName goes with mode User", _tls(clientsCa={"secretName": "mine"})),
    rule(CLUSTER, "renewBefore must be shorter", _tls(clientsCa={"validity": "48h"})),
    rule(CLUSTER, "overlap must be from", _tls(clientsCa={"overlap": "0s"})),
    schema(CLUSTER, "spec.tls.clientsCa.mode", _tls(clientsCa={"mode": "CertManager"})),
    schema(
        CLUSTER,
        "spec.listeners[0].authentication.type",
        {"spec.listeners": [_listener(authentication={"type": "Scram"})]},
    ),
    *(
        rule(CLUSTER, "a listener with authentication Tls needs", said)
        for said in (
            {"spec.listeners": [_listener(authentication=_SHOWN)]},
            _tls(clientsCa={}) | {"spec.listeners": [_listener(authentication=_SHOWN)]},
            _tls() | {"spec.listeners": [_listener(tls=True, authentication=_SHOWN)]},
        )
    ),
    edit(CLUSTER, "set members Permissive first", {}, _tls(members="Enforcing")),
    edit(
        CLUSTER,
        "set members Permissive before tls goes",
        _tls(members="Enforcing"),
        {"spec.tls": REMOVED},
    ),
)
