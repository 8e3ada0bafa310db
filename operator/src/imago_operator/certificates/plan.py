"""What is done about a cluster's certificates: a pure function of what was seen.

An authority is replaced in three phases, each of which lasts until every Secret says so and
`overlap` has passed since: members trust the next authority too; then it signs, and one shard after
the other gets its certificate; then the former is trusted no more. So at no moment does a member
show a certificate that another does not trust. Nothing of it restarts a pod: files are read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.certificates.state import (
    QUORUM,
    TRUSTED,
    ZOOKEEPER,
    AuthorityPhase,
    SeenAuthority,
    SeenCertificates,
    pem_parts,
)
from imago_operator.model import names
from imago_operator.model.actions import CertificateWork, Certify
from imago_operator.model.desired import fingerprint, signing
from imago_operator.model.listeners import outside
from imago_operator.model.outside import general_name, told_host
from imago_operator.model.state import ConditionFinding, written
from imago_operator.spec.cluster.tls import AuthorityMode
from imago_operator.spec.cluster.zookeeper import RegistryTls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from imago_operator.certificates.state import Holder, SeenCertificate
    from imago_operator.model.desired import Desired
    from imago_operator.spec.cluster.tls import Authority, ClientsAuthority, Tls

CONDITION: Final = "CertificatesValid"
ISSUED: Final = "Issued"
DAY: Final = timedelta(days=1)
LEAST_USE: Final = timedelta(hours=2)
"""Between what is noted as the end of a certificate and its validity lies less than this."""


@dataclass(frozen=True, slots=True)
class CertificatesPlan:
    """What is done now, and what is said."""

    actions: tuple[Certify, ...] = ()
    findings: tuple[ConditionFinding, ...] = ()


def holders(desired: Desired, shards: Iterable[int]) -> list[Holder]:
    """Return who is to have a certificate, of a cluster that has these shards."""
    found: list[Holder] = [] if desired.spec.tls is None else list(shards)
    return found if desired.registry_tls is RegistryTls.NONE else [*found, ZOOKEEPER]


def plan(
    desired: Desired, shards: Iterable[int], seen: SeenCertificates | None, now: datetime
) -> CertificatesPlan:
    """Return what is to be done for these shards; `seen`: None: Secrets were not read."""
    tls = signing(desired)
    if tls is None or seen is None:
        return CertificatesPlan()
    wanted = [holder for holder in holders(desired, shards) if holder in seen.read]
    if tls.ca.mode is AuthorityMode.CERT_MANAGER:
        missing = [n for n in wanted if n not in seen.members]
        return CertificatesPlan(findings=(_said(missing, "cert-manager has not written"),))
    if seen.authority is None and tls.ca.mode is AuthorityMode.USER_PROVIDED:
        text = f"Secret {tls.ca.secret_name} has no tls.crt and tls.key of an authority."
        finding = ConditionFinding(
            type=CONDITION, holds=False, reason="AuthorityMissing", message=text
        )
        return CertificatesPlan(findings=(finding,))
    if seen.authority is None:
        return CertificatesPlan(
            (Certify(CertificateWork.NEW_AUTHORITY),), (_said(wanted, "not made yet:"),)
        )
    members = tuple(_members(desired, tls, wanted, seen, seen.authority, now))
    if members or tls.ca.mode is AuthorityMode.USER_PROVIDED:
        missing = [n for n in wanted if n not in seen.members]
        return CertificatesPlan(members, (_said(missing, "not made yet:"),))
    ordered = desired.resource.annotations.get(names.FORCE_RENEW, "")
    moments = [seen.members[n].since for n in wanted]
    work = next_step(tls.ca, seen.authority, moments, ordered, now)
    return CertificatesPlan((Certify(work),) if work else (), (_valid(seen.authority),))


def _members(
    desired: Desired,
    tls: Tls,
    wanted: Sequence[Holder],
    seen: SeenCertificates,
    authority: SeenAuthority,
    now: datetime,
) -> Iterator[Certify]:
    """Yield what members lack: all that have nothing, whom to trust, then a new certificate.

    One of another authority is given only when every Secret has said for a while that it is to be
    trusted, to one after the other.
    """
    have = {holder: seen.members[holder] for holder in wanted if holder in seen.members}
    yield from (Certify(CertificateWork.ISSUE, holder) for holder in wanted if holder not in have)
    overlap = timedelta(seconds=tls.ca.overlap.seconds)
    distrusting = []
    for holder, found in have.items():
        kept = formerly_trusted(found, authority, overlap, now)
        whole = fingerprint(authority.data[TRUSTED] + kept) if kept else authority.trusted
        if found.trusted != whole:
            distrusting.append(holder)
    yield from (Certify(CertificateWork.TRUST, holder) for holder in distrusting)
    of_former = [found for found in have.values() if found.signer != authority.signer]
    known = all(found.since is None or now - found.since >= overlap for found in of_former)
    for holder, found in have.items():
        if holder in distrusting:
            continue
        former = found.signer != authority.signer
        if (former and known) or (not former and _is_old(desired, tls, holder, found, now)):
            yield Certify(CertificateWork.ISSUE, holder)
            return


def formerly_trusted(
    found: SeenCertificate, authority: SeenAuthority, overlap: timedelta, now: datetime
) -> str:
    """Return whom a Secret says to trust besides those that the authority names, as PEM.

    Who signed what is shown still, where another authority was put in its place at once; and who
    did before, until nobody needs that any more.
    """
    known = pem_parts(authority.data.get(TRUSTED, ""))
    former = [part for part in pem_parts(found.data.get(TRUSTED, "")) if part not in known]
    shown = found.signer != authority.signer
    follows = found.since is not None and now - found.since < overlap
    return "".join(former) if shown or follows else ""


def _is_old(
    desired: Desired, tls: Tls, holder: Holder, found: SeenCertificate, now: datetime
) -> bool:
    named = found.names != fingerprint(list(alternative_names(desired, holder)))
    if holder == ZOOKEEPER and not found.data.get(QUORUM):
        return True  # an operator has written it that knew of none
    return named or _is_due(found.not_after, tls, now)


def _is_due(
    not_after: datetime | None, said: Tls | Authority | ClientsAuthority, now: datetime
) -> bool:
    """Whether something is to be replaced: not as soon as it is made, though whole days count."""
    days = max(DAY, timedelta(seconds=said.validity.seconds) // DAY * DAY)
    before = min(timedelta(seconds=said.renew_before.seconds), days - LEAST_USE)
    return not_after is None or not_after - before <= now


def next_step(
    ca: Authority | ClientsAuthority,
    authority: SeenAuthority,
    moments: Iterable[datetime | None],
    ordered: str,
    now: datetime,
) -> CertificateWork | None:
    """Return the next step of replacing an authority; every Secret says what it is to say.

    `moments`: when those Secrets were written; `ordered`: the order of a person to replace it.
    """
    if authority.phase is AuthorityPhase.STABLE:
        asked = bool(ordered) and ordered != authority.renewed
        due = _is_due(authority.not_after, ca, now)
        return CertificateWork.NEXT_AUTHORITY if asked or due else None
    known = (moment for moment in (authority.since, *moments) if moment is not None)
    if now - max(known, default=now) < timedelta(seconds=ca.overlap.seconds):
        return None
    trusting = authority.phase is AuthorityPhase.TRUSTING
    return CertificateWork.SWITCH_AUTHORITY if trusting else CertificateWork.DROP_AUTHORITY


def _said(missing: Sequence[Holder], why: str) -> ConditionFinding:
    listed = ", ".join(f"shard-{n}" if isinstance(n, int) else n for n in missing)
    return ConditionFinding(
        type=CONDITION,
        holds=not missing,
        reason="Issuing" if missing else ISSUED,
        message=f"Certificates {why} {listed}." if missing else "",
    )


def _valid(authority: SeenAuthority) -> ConditionFinding:
    until = written(authority.not_after) if authority.not_after else "its end"
    text = f"The authority is valid until {until}."
    reason = ISSUED
    if authority.phase is not AuthorityPhase.STABLE:
        reason = "ReplacingAuthority"
        text = f"Another authority takes its place: {authority.phase.value}."
    return ConditionFinding(type=CONDITION, holds=True, reason=reason, message=text)


def alternative_names(desired: Desired, holder: Holder) -> Iterator[str]:
    """Yield what somebody's certificate names: `DNS:…`, `IP:…` or `URI:…`."""
    named = _of_members(desired, holder) if isinstance(holder, int) else _of_servers(desired)
    yield from named
    yield "DNS:localhost"
    yield "IP:127.0.0.1"


def _of_servers(desired: Desired) -> Iterator[str]:
    """Yield ZooKeeper's name for brokers. No shard's identity: its servers are no members."""
    yield f"DNS:{names.zookeeper(desired.name)}.{desired.namespace}.svc"
    yield f"DNS:{names.zookeeper(desired.name)}.{desired.namespace}.svc.cluster.local"
    yield f"DNS:*.{names.zookeeper_nodes(desired.name)}.{desired.namespace}.svc"
    yield f"DNS:*.{names.zookeeper_nodes(desired.name)}.{desired.namespace}.svc.cluster.local"


def _of_members(desired: Desired, shard: int) -> Iterator[str]:
    """Yield the shard's identity, by which members know each other, and names that clients have."""
    yield f"URI:imago://{desired.name}/shard-{shard}"
    services = (names.bootstrap(desired.name), names.admin(desired.name))
    for service in (f"*.{names.headless(desired.name)}", *services):
        yield f"DNS:{service}.{desired.namespace}.svc"
        yield f"DNS:{service}.{desired.namespace}.svc.cluster.local"
    for listener in outside(desired.spec):
        if listener.bootstrap_host:
            yield general_name(listener.bootstrap_host)
        for ordinal in range(desired.members_there):
            if host := told_host(desired, listener, shard, ordinal):
                yield general_name(host)
