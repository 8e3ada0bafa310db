"""The rules of an ImagoUser that its bounds do not say."""

from __future__ import annotations

import re
from typing import Any, Final

from imago_operator.spec.schema.common import USER_SIZE_MAX
from imago_operator.spec.schema.rule import Rule, immutable, spans
from imago_operator.spec.schema.values import Duration
from imago_operator.spec.user import ANONYMOUS


def _user_name(node: Any) -> str:
    return str(node.get("spec", {}).get("userName", node["metadata"]["name"]))


def _names_resource(node: Any) -> bool:
    if node["type"] == "Cluster":
        return "name" not in node and node["patternType"] == "literal"
    return "name" in node or node["patternType"] == "prefix"


DAY_SECONDS: Final = 86_400
_CLUSTER_OPERATIONS: Final = ("publish", "subscribe")
RULES: Final[tuple[Rule, ...]] = (
    Rule(
        path="",
        cel=f"has(self.spec.userName) || size(self.metadata.name) <= {USER_SIZE_MAX}",
        holds=lambda node: len(_user_name(node)) <= USER_SIZE_MAX,
        message=f"give a userName: the resource's own is longer than {USER_SIZE_MAX} characters",
    ),
    immutable("spec", "clusterRef"),
    immutable("spec", "userName"),
    immutable("spec", "secretName"),
    Rule(
        path="spec",
        cel="!has(self.userName) || self.userName != 'anonymous'"
        " || self.authentication.type == 'External'",
        holds=lambda node: (
            node.get("userName") != ANONYMOUS or node["authentication"]["type"] == "External"
        ),
        message="anonymous shows no credentials: it needs authentication.type External",
    ),
    Rule(
        path="spec.authentication",
        cel="self.type == 'Password' || !(has(self.passwordSecretRef) || has(self.rotateEvery))",
        holds=lambda node: (
            node["type"] == "Password" or not ("passwordSecretRef" in node or "rotateEvery" in node)
        ),
        message="passwordSecretRef and rotateEvery go with type Password",
    ),
    Rule(
        path="spec.authentication",
        cel="!(has(self.passwordSecretRef) && has(self.rotateEvery))",
        holds=lambda node: not ("passwordSecretRef" in node and "rotateEvery" in node),
        message="rotateEvery is for passwords that the operator generates",
    ),
    Rule(
        path="spec.authentication",
        cel="!has(self.rotateEvery) || duration(self.rotateEvery) > duration(self.overlap)",
        holds=lambda node: (
            "rotateEvery" not in node
            or Duration(node["rotateEvery"]).seconds > Duration(node["overlap"]).seconds
        ),
        message="rotateEvery must be longer than overlap",
    ),
    spans("spec.authentication", "rotateEvery", low="1m", high="87600h"),
    spans("spec.authentication", "overlap", low="1s", high="168h"),
    Rule(
        path="spec.authentication",
        cel="duration(self.renewBefore) < duration(self.validity)",
        holds=lambda node: (
            Duration(node["renewBefore"]).seconds < Duration(node["validity"]).seconds
        ),
        message="renewBefore must be shorter than validity",
    ),
    spans("spec.authentication", "validity", low="10m", high="87600h"),
    Rule(
        path="spec.authentication",
        cel="self.type != 'Tls' || duration(self.validity) >= duration('24h')",
        holds=lambda node: (
            node["type"] != "Tls" or Duration(node["validity"]).seconds >= DAY_SECONDS
        ),
        message="validity of a certificate must be a day (24h) or more",
    ),
    Rule(
        path="spec.authorization.acls[].resource",
        cel="self.type == 'Cluster' ? !has(self.name) && self.patternType == 'literal'"
        " : has(self.name) || self.patternType == 'prefix'",
        holds=_names_resource,
        message="a resource has a name or patternType prefix; type Cluster has neither",
    ),
    Rule(
        path="spec.authorization.acls[].resource",
        cel="!has(self.name) || self.name.matches('^[!-)+-~]*$')",
        holds=lambda node: re.fullmatch(r"[!-)+-~]*", node.get("name", "")) is not None,
        message="names are printable ASCII without * and spaces: patternType prefix leaves the"
        " ending open",
    ),
    Rule(
        path="spec.authorization.acls[]",
        cel="self.resource.type != 'Cluster'"
        " || !self.operations.exists(o, o in ['publish', 'subscribe'])",
        holds=lambda node: (
            node["resource"]["type"] != "Cluster"
            or not any(o in _CLUSTER_OPERATIONS for o in node["operations"])
        ),
        message="publish and subscribe apply to topics and groups, not to the cluster",
    ),
)
