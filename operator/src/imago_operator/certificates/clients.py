"""What is done about the authority that signs for clients: a pure function of what was seen.

It is replaced in the same three phases as that of the members: brokers trust the next one, too;
then it signs, and users get other certificates; then the former is trusted no more, once `overlap`
has passed since all users had theirs. Nothing of it restarts a pod: files are read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.certificates.plan import CONDITION, CertificatesPlan, next_step
from imago_operator.certificates.state import AuthorityPhase
from imago_operator.model import names
from imago_operator.model.actions import CertificateWork, Certify
from imago_operator.model.desired import clients_ca_secret
from imago_operator.model.state import ConditionFinding
from imago_operator.spec.cluster.tls import ClientsAuthorityMode

if TYPE_CHECKING:
    from datetime import datetime

    from imago_operator.certificates.state import SeenAuthority, SeenCertificates, SeenClients
    from imago_operator.model.desired import Desired

NAMED_MAX: Final = 5
"""Users that a message names."""


def plan(desired: Desired, seen: SeenCertificates | None, now: datetime) -> CertificatesPlan:
    """Return what is to be done; `seen`: None: Secrets were not read."""
    ca = desired.spec.tls.clients_ca if desired.spec.tls is not None else None
    if ca is None or seen is None or seen.clients is None:
        return CertificatesPlan()
    clients = seen.clients
    if ca.mode is ClientsAuthorityMode.USER_PROVIDED:
        return CertificatesPlan(findings=() if clients.trusted else (_missing(desired),))
    authority = clients.authority
    if authority is None:
        return CertificatesPlan((Certify(CertificateWork.NEW_AUTHORITY, clients=True),))
    findings = _replacing(clients, authority)
    if authority.phase is AuthorityPhase.REPLACING and clients.behind(authority.signer):
        return CertificatesPlan(findings=findings)
    ordered = desired.resource.annotations.get(names.FORCE_RENEW_CLIENTS_CA, "")
    moments = [holder.issued for holder in clients.holders]
    work = next_step(ca, authority, moments, ordered, now)
    actions = (Certify(work, clients=True),) if work else ()
    return CertificatesPlan(actions, findings)


def _missing(desired: Desired) -> ConditionFinding:
    text = (
        f"Secret {clients_ca_secret(desired)} has no ca.crt: nobody can check clients'"
        " certificates."
    )
    return ConditionFinding(
        type=CONDITION, holds=False, reason="ClientsAuthorityMissing", message=text
    )


def _replacing(clients: SeenClients, authority: SeenAuthority) -> tuple[ConditionFinding, ...]:
    if authority.phase is AuthorityPhase.STABLE:
        return ()
    text = f"Another authority signs for clients: {authority.phase.value}."
    behind = clients.behind(authority.signer)
    if authority.phase is AuthorityPhase.REPLACING and behind:
        more = f" and {len(behind) - NAMED_MAX} more" if len(behind) > NAMED_MAX else ""
        listed = ", ".join(behind[:NAMED_MAX])
        text += f" ImagoUsers with certificates of the former one: {listed}{more}."
    reason = "ReplacingClientsAuthority"
    return (ConditionFinding(type=CONDITION, holds=True, reason=reason, message=text),)
