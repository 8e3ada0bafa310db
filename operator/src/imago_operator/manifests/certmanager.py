"""What cert-manager is asked for: a certificate for the members of each shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator import names
from imago_operator.certificates.plan import alternative_names
from imago_operator.manifests.common import Manifest, child
from imago_operator.spec.fields import to_json
from imago_operator.spec.tls import AuthorityMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.desired import Desired

API_VERSION: Final = "cert-manager.io/v1"
CERTIFICATE: Final = "Certificate"
FIELDS: Final = {"URI": "uris", "DNS": "dnsNames", "IP": "ipAddresses"}


def is_asked(desired: Desired) -> bool:
    """Whether cert-manager writes the members' Secrets."""
    tls = desired.spec.tls
    return tls is not None and tls.ca.mode is AuthorityMode.CERT_MANAGER


def certificates(desired: Desired, shards: Iterable[int]) -> list[Manifest]:
    """Return a Certificate for each shard; none where somebody else signs."""
    return [_certificate(desired, shard) for shard in shards] if is_asked(desired) else []


def _certificate(desired: Desired, shard: int) -> Manifest:
    tls = desired.spec.tls
    assert tls is not None, "it was asked for"
    assert tls.ca.issuer_ref is not None, "the rules of the spec"
    spec: Manifest = {
        "secretName": names.certificate(desired.name, shard),
        "commonName": names.stateful_set(desired.name, shard),
        "issuerRef": to_json(tls.ca.issuer_ref),
        "duration": tls.validity.text,
        "renewBefore": tls.renew_before.text,
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        # Members are both sides of a connection.
        "usages": ["digital signature", "server auth", "client auth"],
    }
    for name in alternative_names(desired, shard):
        kind, _, value = name.partition(":")
        spec.setdefault(FIELDS[kind], []).append(value)
    named = names.stateful_set(desired.name, shard)
    return child(
        desired, API_VERSION, CERTIFICATE, named, names.BROKER, {"spec": spec}, shard=shard
    )
