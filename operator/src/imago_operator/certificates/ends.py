"""When certificates end, by what is in them, whoever made them; and which were not replaced."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509

from imago_operator.certificates.state import CERTIFICATE, ZOOKEEPER, pem_parts
from imago_operator.model.desired import signing
from imago_operator.model.state import ConditionFinding, written
from imago_operator.spec.cluster.tls import AuthorityMode, ClientsAuthorityMode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from imago_operator.certificates.state import Holder, SeenCertificates
    from imago_operator.model.desired import Desired

CONDITION: Final = "CertificateEndsSoon"
SOON: Final = timedelta(days=30)
"""Before the end of what no program replaces."""
AUTHORITY: Final = "authority"
CLIENTS_AUTHORITY: Final = "clients-authority"


def end_of(pem: str) -> datetime | None:
    """Return when the first certificate of a text ends; None: it has none that can be read."""
    parts = pem_parts(pem)
    try:
        return x509.load_pem_x509_certificate(parts[0].encode()).not_valid_after_utc
    except (ValueError, IndexError):
        return None


def ends(seen: SeenCertificates | None) -> dict[str, datetime]:
    """Return the end of each certificate of a cluster that was read, by whose it is."""
    if seen is None:
        return {}
    found = {_name(holder): one.data for holder, one in seen.members.items()}
    if seen.authority is not None:
        found[AUTHORITY] = seen.authority.data
    if seen.clients is not None and seen.clients.authority is not None:
        found[CLIENTS_AUTHORITY] = seen.clients.authority.data
    known = {name: end_of(data.get(CERTIFICATE, "")) for name, data in found.items()}
    return {name: end for name, end in sorted(known.items()) if end is not None}


def _name(holder: Holder) -> str:
    return f"shard-{holder}" if isinstance(holder, int) else ZOOKEEPER


def ending(
    desired: Desired, seen: SeenCertificates | None, now: datetime
) -> Iterator[ConditionFinding]:
    """Yield which certificates end soon and were not replaced, with what was to replace them."""
    late = {name: end for name, end in ends(seen).items() if end - now < _patience(desired, name)}
    if not late:
        return
    listed = ", ".join(f"{name} ends {written(end)}" for name, end in late.items())
    by_hand = any(_renewed(desired, name) is None for name in late)
    text = f"Certificates that end soon: {listed}."
    if by_hand:
        yield ConditionFinding(type=CONDITION, holds=True, reason="NobodyReplacesIt", message=text)
    else:
        yield ConditionFinding(type=CONDITION, holds=True, reason="NotReplaced", message=text)


def _patience(desired: Desired, name: str) -> timedelta:
    """Return how long before its end a certificate is to be another one.

    What is replaced by itself has half of the time that it is replaced before.
    """
    before = _renewed(desired, name)
    return SOON if before is None else min(SOON, before / 2)


def _renewed(desired: Desired, name: str) -> timedelta | None:
    """Return how long before its end a certificate is replaced; None: a person has to."""
    tls, asked = signing(desired), desired.spec.tls
    if name == CLIENTS_AUTHORITY:
        ca = asked.clients_ca if asked else None
        if ca is None or ca.mode is ClientsAuthorityMode.USER_PROVIDED:
            return None
        return timedelta(seconds=ca.renew_before.seconds)
    if tls is None:
        return None
    if name == AUTHORITY:
        mine = tls.ca.mode is AuthorityMode.SELF_SIGNED
        return timedelta(seconds=tls.ca.renew_before.seconds) if mine else None
    return timedelta(seconds=tls.renew_before.seconds)
