"""Secrets of certificates: made as planned, and applied."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from imago_operator.certificates.plan import alternative_names, formerly_trusted
from imago_operator.certificates.state import (
    CERTIFICATE,
    KEY,
    NAMES,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    NOT_AFTER,
    PHASE,
    QUORUM,
    RENEWED,
    SIGNER,
    SINCE,
    TRUSTED,
    ZOOKEEPER,
    AuthorityPhase,
    pem_parts,
    secret_of_holder,
)
from imago_operator.issuing import making
from imago_operator.issuing.making import Validity
from imago_operator.manifests.common import child
from imago_operator.model import names
from imago_operator.model.actions import CertificateWork, Certify
from imago_operator.model.desired import fingerprint, signing
from imago_operator.model.secret_data import coded
from imago_operator.model.state import written

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from imago_operator.certificates.state import Holder, SeenAuthority, SeenCertificates
    from imago_operator.model.desired import Desired
    from imago_operator.spec.schema.values import Duration

DAY_S: Final = 86_400
SLACK: Final = timedelta(hours=1)
"""Clocks differ: what is noted as the end of a certificate is before it."""


def secret_of(
    desired: Desired, work: Certify, seen: SeenCertificates, now: datetime
) -> Mapping[str, Any]:
    """Return the Secret that a piece of work asks for."""
    if work.holder is not None:
        return _of_holder(desired, work, work.holder, seen, now)
    tls, said = signing(desired), desired.resource.annotations
    assert tls is not None, "it was planned"
    if work.clients:
        assert tls.clients_ca is not None, "it was planned"
        assert seen.clients is not None
        authority = _Authority(
            secret=names.clients_authority(desired.name),
            name=f"{desired.name} clients CA",
            days=whole_days(tls.clients_ca.validity),
            ordered=said.get(names.FORCE_RENEW_CLIENTS_CA, ""),
            before=seen.clients.authority,
            former=seen.clients.former,
        )
    else:
        authority = _Authority(
            secret=names.authority(desired.name),
            name=f"{desired.name} CA",
            days=whole_days(tls.ca.validity),
            ordered=said.get(names.FORCE_RENEW, ""),
            before=seen.authority,
            former=_trusted_by(seen),
        )
    data, notes = _of_authority(authority, work.work, now)
    return _authority(desired, authority.secret, data, notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Authority:
    """One of a cluster's authorities, and what is to come of it."""

    secret: str
    name: str
    """Its subject begins so: that of each authority of a cluster otherwise."""
    days: int
    ordered: str
    before: SeenAuthority | None
    former: str
    """Where there is none: those whose certificates are still shown, as PEM."""


def _of_authority(
    authority: _Authority, work: CertificateWork, now: datetime
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return entries and annotations of its Secret."""
    before, days = authority.before, authority.days
    subject = f"{authority.name} {now:%Y-%m-%d}"
    common = {SINCE: written(now), RENEWED: authority.ordered}
    if work is CertificateWork.NEW_AUTHORITY:
        made = making.authority(subject, Validity(now, days))
        # Where one was lost, what it signed is shown until each has another certificate.
        former = authority.former
        data = {CERTIFICATE: made.certificate, KEY: made.key, TRUSTED: former + made.certificate}
        phase = AuthorityPhase.REPLACING if former else AuthorityPhase.STABLE
        return data, {PHASE: phase.value, **common, **_ends(now, days)}
    assert before is not None, "it was planned"
    data = dict(before.data)
    kept = {NOT_AFTER: written(before.not_after)} if before.not_after else {}
    if work is CertificateWork.NEXT_AUTHORITY:
        made = making.authority(subject, Validity(now, days))
        data |= {NEXT_CERTIFICATE: made.certificate, NEXT_KEY: made.key}
        data[TRUSTED] = data[CERTIFICATE] + made.certificate
        return data, {PHASE: AuthorityPhase.TRUSTING.value, **common, **kept}
    noted = common | {RENEWED: before.renewed}
    if work is CertificateWork.SWITCH_AUTHORITY:
        data[CERTIFICATE], data[KEY] = data.pop(NEXT_CERTIFICATE), data.pop(NEXT_KEY)
        # The next one was made when the phase before began.
        begun = before.since or now
        return data, {PHASE: AuthorityPhase.REPLACING.value, **noted, **_ends(begun, days)}
    data[TRUSTED] = data[CERTIFICATE]
    return data, {PHASE: AuthorityPhase.STABLE.value, **noted, **kept}


def _trusted_by(seen: SeenCertificates) -> str:
    """Return every authority that a member trusts, once."""
    found: dict[str, None] = {}
    for member in seen.members.values():
        found |= dict.fromkeys(pem_parts(member.data[TRUSTED]))
    return "".join(found)


def _of_holder(
    desired: Desired, work: Certify, holder: Holder, seen: SeenCertificates, now: datetime
) -> Mapping[str, Any]:
    tls, authority = signing(desired), seen.authority
    assert tls is not None, "it was planned"
    assert authority is not None
    alternatives = list(alternative_names(desired, holder))
    before = seen.members.get(holder)
    trusted = authority.data[TRUSTED]
    if before is not None:
        overlap = timedelta(seconds=tls.ca.overlap.seconds)
        trusted += formerly_trusted(before, authority, overlap, now)
    if work.work is CertificateWork.TRUST and before is not None and before.not_after is not None:
        data = dict(before.data) | {TRUSTED: trusted}
        noted = {SINCE: written(now), SIGNER: before.signer, NAMES: before.names}
        return _holder(desired, holder, data, noted | {NOT_AFTER: written(before.not_after)})
    noted = {SINCE: written(now), SIGNER: authority.signer, NAMES: fingerprint(alternatives)}
    days = whole_days(tls.validity)
    signer = making.IssuedPair(authority.data[CERTIFICATE], authority.data[KEY])
    name = f"{desired.name}-s{holder}" if isinstance(holder, int) else names.zookeeper(desired.name)
    valid = Validity(now, days)
    made = making.certificate(name, alternatives, valid, signer)
    data = {
        CERTIFICATE: made.certificate + authority.data[CERTIFICATE],
        KEY: made.key,
        TRUSTED: trusted,
    }
    if holder == ZOOKEEPER:
        # No two have the same subject: ZooKeeper would trust the latter alone.
        number = fingerprint(made.certificate)
        data[QUORUM] = making.own_certificate(name, number, valid, made.key)
    return _holder(desired, holder, data, noted | _ends(now, days))


def _authority(
    desired: Desired, name: str, data: Mapping[str, str], notes: Mapping[str, str]
) -> Mapping[str, Any]:
    content = {"type": "Opaque", "data": coded(data)}
    return child(desired, "v1", "Secret", name, names.BROKER, content, annotations=notes)


def _holder(
    desired: Desired, holder: Holder, data: Mapping[str, str], noted: Mapping[str, str]
) -> Mapping[str, Any]:
    content = {"type": "kubernetes.io/tls", "data": coded(data)}
    name = secret_of_holder(desired.name, holder)
    shard = holder if isinstance(holder, int) else None
    component = names.ZOOKEEPER if shard is None else names.BROKER
    return child(desired, "v1", "Secret", name, component, content, shard=shard, annotations=noted)


def whole_days(span: Duration) -> int:
    """Return how many days a certificate is valid that is to be so for this long."""
    return max(1, int(span.seconds // DAY_S))


def end_of(begun: datetime, days: int) -> datetime:
    """Return the end of a certificate, as it is noted."""
    return begun + timedelta(days=days) - SLACK


def _ends(begun: datetime, days: int) -> dict[str, str]:
    return {NOT_AFTER: written(end_of(begun, days))}
