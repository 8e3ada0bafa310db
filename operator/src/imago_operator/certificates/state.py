"""The authority and the certificates that there are, as their Secrets say."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model import names
from imago_operator.model.desired import fingerprint
from imago_operator.model.secret_data import decoded
from imago_operator.model.state import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
TRUSTED: Final = "ca.crt"
QUORUM: Final = "quorum.crt"
"""By which ZooKeeper's servers know each other: of the same key, and signed by itself alone."""
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
PHASE: Final = f"{names.GROUP}/ca-phase"
SINCE: Final = f"{names.GROUP}/since"
NOT_AFTER: Final = f"{names.GROUP}/not-after"
RENEWED: Final = f"{names.GROUP}/renewed"
SIGNER: Final = f"{names.GROUP}/signer"
NAMES: Final = f"{names.GROUP}/names-hash"


_PEM_END: Final = "-----END CERTIFICATE-----"


ZOOKEEPER: Final = "zookeeper"
"""The servers of a managed ZooKeeper, among those that have certificates."""
Holder = int | str
"""Who has a certificate: the members of a shard, by its number, or ZooKeeper's servers."""


class AuthorityPhase(StrEnum):
    """Where the replacement of an authority stands."""

    STABLE = "Stable"
    """There is one."""
    TRUSTING = "Trusting"
    """Members learn to trust the next one; the former signs."""
    REPLACING = "Replacing"
    """The next one signs; members trust both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAuthority:
    """An authority, as its Secret has it."""

    data: Mapping[str, str] = field(repr=False)
    signer: str
    """Fingerprint of the certificate that signs now."""
    trusted: str
    """Fingerprint of what members are to trust."""
    phase: AuthorityPhase = AuthorityPhase.STABLE
    since: datetime | None = None
    """When the phase began."""
    not_after: datetime | None = None
    """None: it is somebody else's, who looks after it."""
    renewed: str = ""
    """The order to replace it that was heeded last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCertificate:
    """The certificate of a shard's members, or of ZooKeeper's servers, as its Secret has it."""

    data: Mapping[str, str] = field(repr=False)
    signer: str
    trusted: str
    names: str
    """Fingerprint of what it names."""
    since: datetime | None
    """When the Secret was written."""
    not_after: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenHolder:
    """A user that has a certificate, as the status of its ImagoUser says."""

    name: str
    """Namespace and name of the ImagoUser."""
    signer: str
    issued: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClients:
    """What signs for clients."""

    authority: SeenAuthority | None = None
    """None: nothing that could sign."""
    trusted: str = ""
    """Fingerprint of what brokers are to trust; empty: there is nothing."""
    holders: tuple[SeenHolder, ...] = ()
    """Looked for while one authority takes the place of another."""
    former: str = field(default="", repr=False)
    """Authorities of certificates that users have, as PEM; looked for where there is none."""

    def behind(self, signer: str) -> list[str]:
        """Return who has a certificate of somebody else."""
        return sorted(holder.name for holder in self.holders if holder.signer != signer)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCertificates:
    """All of a cluster."""

    authority: SeenAuthority | None = None
    read: frozenset[Holder] = frozenset()
    """Whose Secrets were looked for; of others nothing is known."""
    members: Mapping[Holder, SeenCertificate] = field(default_factory=dict)
    clients: SeenClients | None = None
    """None: nobody signs for clients."""


def clients_of(
    secret: Mapping[str, Any] | None, holders: tuple[SeenHolder, ...] = (), former: str = ""
) -> SeenClients:
    """Return what signs for clients, given its Secret."""
    trusted = decoded(secret or {}).get(TRUSTED, "")
    return SeenClients(
        authority=authority_of(secret),
        trusted=fingerprint(trusted) if trusted.strip() else "",
        holders=holders,
        former=former,
    )


def secret_of_holder(cluster: str, holder: Holder) -> str:
    """Return the name of the Secret with somebody's certificate."""
    if isinstance(holder, int):
        return names.certificate(cluster, holder)
    return names.zookeeper_certificate(cluster)


def pem_parts(text: str) -> list[str]:
    """Return the certificates in a text, each with its end."""
    parts = text.split(_PEM_END)[:-1]
    return [f"{part.lstrip()}{_PEM_END}\n" for part in parts]


def authority_of(secret: Mapping[str, Any] | None) -> SeenAuthority | None:
    """Return the authority in a Secret; None: it has none that could sign."""
    data = decoded(secret or {})
    if not all(data.get(entry) for entry in (CERTIFICATE, KEY)):
        return None
    noted = _notes(secret)
    data.setdefault(TRUSTED, data[CERTIFICATE])
    return SeenAuthority(
        data=data,
        signer=fingerprint(data[CERTIFICATE]),
        trusted=fingerprint(data[TRUSTED]),
        phase=AuthorityPhase(noted.get(PHASE, AuthorityPhase.STABLE)),
        since=_moment(noted, SINCE),
        not_after=_moment(noted, NOT_AFTER),
        renewed=noted.get(RENEWED, ""),
    )


def certificate_of(secret: Mapping[str, Any] | None) -> SeenCertificate | None:
    """Return the certificate in a Secret; None: it has none."""
    data = decoded(secret or {})
    if not all(data.get(entry) for entry in (CERTIFICATE, KEY, TRUSTED)):
        return None
    noted = _notes(secret)
    return SeenCertificate(
        data=data,
        signer=noted.get(SIGNER, ""),
        trusted=fingerprint(data[TRUSTED]),
        names=noted.get(NAMES, ""),
        since=_moment(noted, SINCE),
        not_after=_moment(noted, NOT_AFTER),
    )


def _notes(secret: Mapping[str, Any] | None) -> Mapping[str, str]:
    found: Mapping[str, str] = (secret or {}).get("metadata", {}).get("annotations") or {}
    return found


def _moment(noted: Mapping[str, str], name: str) -> datetime | None:
    return parsed(noted[name]) if name in noted else None
