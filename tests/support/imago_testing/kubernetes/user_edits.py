"""Edits of ImagoUsers that must be refused."""

from __future__ import annotations

from typing import Any, Final

from imago_testing.kubernetes.resource_edits import REMOVED, USER, edit, rule, schema


def _acl(operations: tuple[str, ...] = ("publish",), **resource: Any) -> dict[str, Any]:
    return {
        "spec.authorization": {"acls": [{"resource": resource, "operations": list(operations)}]}
    }


def _certified(name: str, **said: str) -> dict[str, Any]:
    return {"spec.userName": name, "spec.authentication": {"type": "Tls", **said}}


def _borne(name: str, **said: str) -> dict[str, Any]:
    return {"spec.userName": name, "spec.authentication": {"type": "Token", **said}}


BAD_USERS: Final = (
    rule(USER, "give a userName", {"spec.userName": REMOVED}, name="u" * 65),
    edit(USER, "clusterRef cannot be changed", {}, {"spec.clusterRef": {"name": "other"}}),
    edit(USER, "userName cannot be changed", {}, {"spec.userName": "bob"}),
    edit(USER, "userName cannot be changed", {}, {"spec.userName": REMOVED}),
    edit(USER, "secretName cannot be changed", {}, {"spec.secretName": "elsewhere"}),
    schema(USER, "spec.userName", {"spec.userName": "a/../b"}),
    schema(USER, "spec.authorization.acls[0].operations", _acl((), type="Topic", name="a")),
    schema(USER, "spec.authorization.acls[0].resource.type", _acl(type="Queue", name="a")),
    schema(USER, "spec.quotas.connections", {"spec.quotas": {"connections": 0}}),
    rule(USER, "anonymous shows no credentials", {"spec.userName": "anonymous"}),
    rule(
        USER,
        "go with type Password",
        {"spec.authentication": {"type": "External", "rotateEvery": "24h"}},
    ),
    rule(
        USER,
        "go with type Password",
        {"spec.authentication": {"type": "External", "passwordSecretRef": {"name": "a"}}},
    ),
    rule(
        USER,
        "rotateEvery is for passwords",
        {"spec.authentication": {"rotateEvery": "24h", "passwordSecretRef": {"name": "a"}}},
    ),
    rule(USER, "longer than overlap", {"spec.authentication": {"rotateEvery": "10m"}}),
    rule(USER, "rotateEvery must be from", {"spec.authentication": {"rotateEvery": "876001h"}}),
    rule(USER, "overlap must be from", {"spec.authentication": {"overlap": "0s"}}),
    rule(
        USER,
        "go with type Password",
        {"spec.authentication": {"type": "Tls", "passwordSecretRef": {"name": "a"}}},
    ),
    rule(USER, "needs authentication.type External", _certified("anonymous")),
    rule(USER, "renewBefore must be shorter", _certified("ann", validity="48h")),
    rule(USER, "validity of a certificate", _certified("ann", validity="2h", renewBefore="1h")),
    rule(USER, "validity must be from", _borne("ann", validity="5m", renewBefore="1m")),
    rule(USER, "renewBefore must be shorter", _borne("ann", validity="24h")),
    rule(USER, "needs authentication.type External", _borne("anonymous")),
    rule(USER, "go with type Password", _borne("ann", rotateEvery="24h")),
    rule(USER, "has a name or patternType prefix", _acl(type="Topic")),
    rule(USER, "has a name or patternType prefix", _acl(("describe",), type="Cluster", name="a")),
    rule(USER, "printable ASCII without", _acl(type="Topic", name="orders*")),
    rule(USER, "printable ASCII without", _acl(type="Topic", name="b\u0430d")),
    rule(USER, "publish and subscribe apply to topics", _acl(type="Cluster")),
)
