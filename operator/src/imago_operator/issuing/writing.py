"""Secrets of certificates: made as planned, and applied."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from imago_operator import names
from imago_operator.actions import CertificateWork, Certify
from imago_operator.certificates.plan import alternative_names
from imago_operator.certificates.state import (
    CERTIFICATE,
    KEY,
    NAMES,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    NOT_AFTER,
    PHASE,
    RENEWED,
    SIGNER,
    SINCE,
    TRUSTED,
    AuthorityPhase,
)
from imago_operator.desired import fingerprint
from imago_operator.issuing import openssl
from imago_operator.manifests.common import child
from imago_operator.secret_data import coded
from imago_operator.state import written

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from imago_operator.certificates.state import SeenCertificates
    from imago_operator.desired import Desired
    from imago_operator.spec.values import Duration

DAY_S: Final = 86_400
SLACK: Final = timedelta(hours=1)
"""Clocks differ: what is noted as the end of a certificate is before it."""

_PEM_END: Final = "-----END CERTIFICATE-----"


async def secret_of(
    desired: Desired, work: Certify, seen: SeenCertificates, now: datetime
) -> Mapping[str, Any]:
    """Return the Secret that a piece of work asks for."""
    if work.shard is not None:
        return await _of_members(desired, work, seen, now)
    return await _of_authority(desired, work.work, seen, now)


async def _of_authority(
    desired: Desired, work: CertificateWork, seen: SeenCertificates, now: datetime
) -> Mapping[str, Any]:
    tls, before = desired.spec.tls, seen.authority
    assert tls is not None, "it was planned"
    days = _days(tls.ca.validity)
    ordered = desired.resource.annotations.get(names.FORCE_RENEW, "")
    common = {SINCE: written(now), RENEWED: ordered}
    if work is CertificateWork.NEW_AUTHORITY:
        made = await openssl.authority(f"{desired.name} CA {now:%Y-%m-%d}", days)
        # Where one was lost, members show what it signed until each has another certificate.
        former = _trusted_by(seen)
        data = {CERTIFICATE: made.certificate, KEY: made.key, TRUSTED: former + made.certificate}
        phase = AuthorityPhase.REPLACING if former else AuthorityPhase.STABLE
        return _authority(desired, data, phase, common | _ends(now, days))
    assert before is not None, "it was planned"
    data = dict(before.data)
    kept = {NOT_AFTER: written(before.not_after)} if before.not_after else {}
    if work is CertificateWork.NEXT_AUTHORITY:
        made = await openssl.authority(f"{desired.name} CA {now:%Y-%m-%d}", days)
        data |= {NEXT_CERTIFICATE: made.certificate, NEXT_KEY: made.key}
        data[TRUSTED] = data[CERTIFICATE] + made.certificate
        return _authority(desired, data, AuthorityPhase.TRUSTING, common | kept)
    noted = common | {RENEWED: before.renewed}
    if work is CertificateWork.SWITCH_AUTHORITY:
        data[CERTIFICATE], data[KEY] = data.pop(NEXT_CERTIFICATE), data.pop(NEXT_KEY)
        # The next one was made when the phase before began.
        begun = before.since or now
        return _authority(desired, data, AuthorityPhase.REPLACING, noted | _ends(begun, days))
    data[TRUSTED] = data[CERTIFICATE]
    return _authority(desired, data, AuthorityPhase.STABLE, noted | kept)


def _trusted_by(seen: SeenCertificates) -> str:
    """Return every authority that a member trusts, once."""
    found: dict[str, None] = {}
    for member in seen.members.values():
        for part in member.data[TRUSTED].split(_PEM_END)[:-1]:
            found[f"{part.lstrip()}{_PEM_END}\n"] = None
    return "".join(found)


async def _of_members(
    desired: Desired, work: Certify, seen: SeenCertificates, now: datetime
) -> Mapping[str, Any]:
    tls, authority, shard = desired.spec.tls, seen.authority, work.shard
    assert tls is not None, "it was planned"
    assert authority is not None
    assert shard is not None
    alternatives = list(alternative_names(desired, shard))
    before = seen.members.get(shard)
    if work.work is CertificateWork.TRUST and before is not None and before.not_after is not None:
        data = dict(before.data) | {TRUSTED: authority.data[TRUSTED]}
        noted = {SINCE: written(now), SIGNER: before.signer, NAMES: before.names}
        return _members(desired, shard, data, noted | {NOT_AFTER: written(before.not_after)})
    noted = {SINCE: written(now), SIGNER: authority.signer, NAMES: fingerprint(alternatives)}
    days = _days(tls.validity)
    signer = openssl.IssuedPair(authority.data[CERTIFICATE], authority.data[KEY])
    name = f"{desired.name}-s{shard}"
    made = await openssl.certificate(name, ",".join(alternatives), days, signer)
    data = {
        CERTIFICATE: made.certificate + authority.data[CERTIFICATE],
        KEY: made.key,
        TRUSTED: authority.data[TRUSTED],
    }
    return _members(desired, shard, data, noted | _ends(now, days))


def _authority(
    desired: Desired, data: Mapping[str, str], phase: AuthorityPhase, noted: Mapping[str, str]
) -> Mapping[str, Any]:
    content = {"type": "Opaque", "data": coded(data)}
    return child(
        desired,
        "v1",
        "Secret",
        names.authority(desired.name),
        names.BROKER,
        content,
        annotations={PHASE: phase.value, **noted},
    )


def _members(
    desired: Desired, shard: int, data: Mapping[str, str], noted: Mapping[str, str]
) -> Mapping[str, Any]:
    content = {"type": "kubernetes.io/tls", "data": coded(data)}
    name = names.certificate(desired.name, shard)
    return child(
        desired, "v1", "Secret", name, names.BROKER, content, shard=shard, annotations=noted
    )


def _days(span: Duration) -> int:
    return max(1, int(span.seconds // DAY_S))


def _ends(begun: datetime, days: int) -> dict[str, str]:
    return {NOT_AFTER: written(begun + timedelta(days=days) - SLACK)}
