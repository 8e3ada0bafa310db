"""A user's certificate: when it is made, and what is noted beside it in its Secret.

Brokers learn of an authority before users have certificates of it: it signs for a user once what
brokers are to trust has been the same for `overlap`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from imago_operator.certificates.state import CERTIFICATE, KEY, NAMES, NOT_AFTER, SIGNER, SINCE
from imago_operator.model import names
from imago_operator.model.desired import fingerprint
from imago_operator.model.state import parsed, written
from imago_operator.spec.user import UserCertificate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from imago_operator.certificates.state import SeenAuthority
    from imago_operator.contents.values import SeenSecret
    from imago_operator.spec.user import UserSpec, UserToken

TRUSTED_BY_BROKERS: Final = f"{names.GROUP}/clients-ca-hash"
ISSUED: Final = f"{names.GROUP}/issued"


class CertificateNeed(Enum):
    """What is to be done about a user's certificate."""

    NOTHING = "nothing"
    NOTE = "note whom brokers are to trust now"
    ISSUE = "make another one"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSigner:
    """Who signs for the users of a cluster."""

    authority: SeenAuthority
    overlap: timedelta


def need(
    secret: SeenSecret | None,
    by: UserSigner,
    spec: UserSpec,
    name: str,
    *,
    ordered: bool,
    now: datetime,
) -> CertificateNeed:
    """Return what is to be done; `ordered`: somebody wants another certificate."""
    if secret is None or not all(secret.data.get(entry) for entry in (CERTIFICATE, KEY)):
        return CertificateNeed.ISSUE
    notes = secret.notes
    has = told(notes)
    if has is None or ordered or notes.get(NAMES) != fingerprint(name):
        return CertificateNeed.ISSUE
    if renewed_at(has, spec) <= now:
        return CertificateNeed.ISSUE
    if notes.get(TRUSTED_BY_BROKERS) != by.authority.trusted:
        return CertificateNeed.NOTE
    following = follows_at(notes, by)
    return CertificateNeed.ISSUE if following and following <= now else CertificateNeed.NOTHING


def renewed_at(has: UserCertificate | UserToken, spec: UserSpec) -> datetime:
    """Return when another certificate or token is made: never before half of this one's time."""
    issued, ends = parsed(has.issued), parsed(has.not_after)
    before = timedelta(seconds=spec.authentication.renew_before.seconds)
    return max(ends - before, issued + (ends - issued) / 2)


def follows_at(notes: Mapping[str, str], by: UserSigner) -> datetime | None:
    """Return from when on the authority signs for a user of the former; None: it has signed."""
    if notes.get(SIGNER) == by.authority.signer or SINCE not in notes:
        return None
    return parsed(notes[SINCE]) + by.overlap


def noted(notes: Mapping[str, str], by: UserSigner, now: datetime) -> dict[str, str]:
    """Return the notes once brokers are to trust somebody else."""
    return {**notes, TRUSTED_BY_BROKERS: by.authority.trusted, SINCE: written(now)}


def notes_of(name: str, by: UserSigner, now: datetime, ends: datetime) -> dict[str, str]:
    """Return the notes beside a new certificate."""
    return {
        SIGNER: by.authority.signer,
        NAMES: fingerprint(name),
        TRUSTED_BY_BROKERS: by.authority.trusted,
        SINCE: written(now),
        ISSUED: written(now),
        NOT_AFTER: written(ends),
    }


def told(notes: Mapping[str, str]) -> UserCertificate | None:
    """Return what a status says of a certificate, given the notes beside it."""
    if not all(note in notes for note in (SIGNER, ISSUED, NOT_AFTER)):
        return None
    return UserCertificate(signer=notes[SIGNER], issued=notes[ISSUED], not_after=notes[NOT_AFTER])
