"""The rules of a cluster's TLS and authorization that their bounds do not say."""

from __future__ import annotations

from typing import Any, Final

from imago_operator.spec.schema.rule import Rule, spans
from imago_operator.spec.schema.values import Duration

AUTHORITY: Final = "spec.tls.ca"
CLIENTS_AUTHORITY: Final = "spec.tls.clientsCa"


def _before_its_end(path: str) -> Rule:
    return Rule(
        path=path,
        cel="duration(self.renewBefore) < duration(self.validity)",
        holds=lambda node: (
            Duration(node["renewBefore"]).seconds < Duration(node["validity"]).seconds
        ),
        message="renewBefore must be shorter than validity",
    )


_CLIENT_AUTH: Final = "tls.client_auth"


def _leaves_tls_alone(node: Any) -> bool:
    """Whether settings of brokers say nothing that the operator says, or that shuts it out."""
    if "tls" not in node:
        return True
    said = {
        key: value for key, value in node["brokers"].get("config", {}).items() if key[:4] == "tls."
    }
    refused = "none" if "clientsCa" in node["tls"] else "required"
    return not set(said) - {_CLIENT_AUTH} and said.get(_CLIENT_AUTH) != refused


def _asks_what_is_there(node: Any) -> bool:
    """Whether a listener that asks for certificates has TLS, and somebody signs them."""
    asking = [
        way
        for way in node.get("listeners", ())
        if (way.get("authentication") or {}).get("type") == "Tls"
    ]
    signed = "clientsCa" in node.get("tls", {})
    return not asking or (signed and all(way.get("tls") for way in asking))


def _names_what_is_told(node: Any) -> bool:
    """Whether certificates can name all that clients from outside are told, and ask first."""
    return "tls" not in node or not any(map(_tells_the_unnamed, node.get("listeners", ())))


def _tells_the_unnamed(way: Any) -> bool:
    if way["type"] == "Internal":
        return False
    told = way.get("advertisedHostTemplate", "{node}")
    return "{node}" in told or (way["type"] == "LoadBalancer" and "bootstrapHost" not in way)


def _enforcing(node: Any) -> bool:
    return bool(node.get("tls", {}).get("members") == "Enforcing")


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        path="spec.authorization",
        cel="!has(self.tokenReview) || !self.tokenReview || self.type == 'Simple'",
        holds=lambda node: not node.get("tokenReview") or node["type"] == "Simple",
        message="tokenReview needs type Simple: without access control brokers check no identities",
    ),
    Rule(
        path=AUTHORITY,
        cel="has(self.secretName) == (self.mode == 'UserProvided')"
        " && has(self.issuerRef) == (self.mode == 'CertManager')",
        holds=lambda node: (
            ("secretName" in node) == (node["mode"] == "UserProvided")
            and ("issuerRef" in node) == (node["mode"] == "CertManager")
        ),
        message="secretName goes with mode UserProvided, issuerRef with CertManager",
    ),
    _before_its_end(AUTHORITY),
    Rule(
        path=CLIENTS_AUTHORITY,
        cel="has(self.secretName) == (self.mode == 'UserProvided')",
        holds=lambda node: ("secretName" in node) == (node["mode"] == "UserProvided"),
        message="secretName goes with mode UserProvided",
    ),
    _before_its_end(CLIENTS_AUTHORITY),
    spans(CLIENTS_AUTHORITY, "validity", low="24h", high="175200h"),
    spans(CLIENTS_AUTHORITY, "overlap", low="1s", high="168h"),
    Rule(
        path="spec",
        cel="!has(self.listeners) || !self.listeners.exists(l, has(l.authentication)"
        " && l.authentication.type == 'Tls') || (has(self.tls) && has(self.tls.clientsCa)"
        " && self.listeners.all(l, !has(l.authentication) || l.authentication.type != 'Tls'"
        " || (has(l.tls) && l.tls)))",
        holds=_asks_what_is_there,
        message="a listener with authentication Tls needs its tls true, and spec.tls.clientsCa,"
        " which signs for clients",
    ),
    _before_its_end("spec.tls"),
    spans(AUTHORITY, "validity", low="24h", high="175200h"),
    spans("spec.tls", "validity", low="24h", high="87600h"),
    spans(AUTHORITY, "overlap", low="1s", high="168h"),
    Rule(
        path="spec",
        cel="has(self.tls) || !has(self.listeners)"
        " || !self.listeners.exists(l, has(l.tls) && l.tls)",
        holds=lambda node: (
            "tls" in node or not any(way.get("tls") for way in node.get("listeners", ()))
        ),
        message="a listener with tls needs spec.tls",
    ),
    Rule(
        path="spec",
        cel="!has(self.tls) || !has(self.listeners) || self.listeners.all(l, l.type == 'Internal'"
        " || (has(l.advertisedHostTemplate) && !l.advertisedHostTemplate.contains('{node}')"
        " && (l.type == 'NodePort' || has(l.bootstrapHost))))",
        holds=_names_what_is_told,
        message="with spec.tls, a listener needs advertisedHostTemplate, without {node}, and one of"
        " type LoadBalancer bootstrapHost, too: certificates name no node and no load balancer, so"
        " clients that check names, inside of the cluster too, would refuse the brokers",
        only_at_admission=True,
    ),
    Rule(
        path="spec",
        cel="!has(self.tls) || !has(self.brokers.config)"
        " || self.brokers.config.all(key, !key.startsWith('tls.')"
        f" || (key == '{_CLIENT_AUTH}' && self.brokers.config[key] !="
        " (has(self.tls.clientsCa) ? 'none' : 'required')))",
        holds=_leaves_tls_alone,
        message="beside spec.tls, config may set only tls.client_auth none or optional, with"
        " clientsCa optional or required: the rest is the operator's, which shows no certificate",
        only_at_admission=True,
    ),
    Rule(
        path="spec",
        cel="!has(self.tls) || self.tls.members != 'Enforcing' || has(oldSelf.tls)",
        holds_after=lambda node, old: not _enforcing(node) or "tls" in old,
        message="members that run have no certificate yet: set members Permissive first",
    ),
    Rule(
        path="spec",
        cel="has(self.tls) || !has(oldSelf.tls) || oldSelf.tls.members != 'Enforcing'",
        holds_after=lambda node, old: "tls" in node or not _enforcing(old),
        message="members that run serve TLS only: set members Permissive before tls goes",
    ),
)
