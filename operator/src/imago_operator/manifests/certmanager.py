"""What cert-manager is asked for: certificates of the members of each shard, and of ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.certificates.plan import alternative_names, holders
from imago_operator.certificates.state import secret_of_holder
from imago_operator.manifests.common import Manifest, child
from imago_operator.model import names
from imago_operator.spec.cluster.tls import AuthorityMode
from imago_operator.spec.schema.fields import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.certificates.state import Holder
    from imago_operator.model.desired import Desired

API_VERSION: Final = "cert-manager.io/v1"
CERTIFICATE: Final = "Certificate"
FIELDS: Final = {"URI": "uris", "DNS": "dnsNames", "IP": "ipAddresses"}


def is_asked(desired: Desired) -> bool:
    """Whether cert-manager writes the members' Secrets."""
    tls = desired.spec.tls
    return tls is not None and tls.ca.mode is AuthorityMode.CERT_MANAGER


def certificates(desired: Desired, shards: Iterable[int]) -> list[Manifest]:
    """Return a Certificate for each shard, and ZooKeeper's; none where somebody else signs."""
    if not is_asked(desired):
        return []
    return [_certificate(desired, holder) for holder in holders(desired, shards)]


def _certificate(desired: Desired, holder: Holder) -> Manifest:
    tls = desired.spec.tls
    assert tls is not None, "it was asked for"
    assert tls.ca.issuer_ref is not None, "the rules of the spec"
    shard = holder if isinstance(holder, int) else None
    named = names.zookeeper(desired.name)
    if shard is not None:
        named = names.stateful_set(desired.name, shard)
    spec: Manifest = {
        "secretName": secret_of_holder(desired.name, holder),
        "commonName": named,
        "issuerRef": to_json(tls.ca.issuer_ref),
        "duration": tls.validity.text,
        "renewBefore": tls.renew_before.text,
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        # Members are both sides of a connection.
        "usages": ["digital signature", "server auth", "client auth"],
    }
    if shard is None:
        spec["privateKey"]["encoding"] = "PKCS8"  # what its servers read
    for name in alternative_names(desired, holder):
        kind, _, value = name.partition(":")
        spec.setdefault(FIELDS[kind], []).append(value)
    component = names.ZOOKEEPER if shard is None else names.BROKER
    return child(desired, API_VERSION, CERTIFICATE, named, component, {"spec": spec}, shard=shard)
