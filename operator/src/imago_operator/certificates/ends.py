"""When certificates end, by what is in them, whoever made them; and which were not replaced."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.certificates.state import CERTIFICATE, ZOOKEEPER, pem_parts
from imago_operator.model.desired import signing
from imago_operator.model.state import ConditionFinding, written
from imago_operator.spec.cluster.tls import AuthorityMode, ClientsAuthorityMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.certificates.state import Holder, SeenCertificates
    from imago_operator.model.desired import Desired

CONDITION: Final = "CertificateEndsSoon"
SOON: Final = timedelta(days=30)
"""Before the end of what no program replaces."""
AUTHORITY: Final = "authority"
CLIENTS_AUTHORITY: Final = "clients-authority"
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG_TIME: Final = 0x18
_CENTURY: Final = 50
"""Years of two digits: from here on they are of the last century."""


def end_of(pem: str) -> datetime | None:
    """Return when the first certificate of a text ends; None: it has none that can be read."""
    parts = pem_parts(pem)
    if not parts:
        return None
    try:
        der = base64.b64decode("".join(parts[0].splitlines()[1:-1]), validate=True)
        return _end(der)
    except (binascii.Error, ValueError, IndexError):
        return None


def _end(der: bytes) -> datetime:
    """Certificate, its part that is signed, then: version, number, algorithm, issuer, validity."""
    at = _enter(der, _enter(der, 0))
    for _ in range(4 if der[at] == _VERSION else 3):
        at = _read(der, at)[1]
    at = _read(der, _enter(der, at))[1]
    kind, start = der[at], _read(der, at)[0]
    text = der[start : _read(der, at)[1]].decode("ascii")
    if kind == _UTC_TIME:
        text = f"{'19' if int(text[:2]) >= _CENTURY else '20'}{text}"
    elif kind != _LONG_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _enter(der: bytes, at: int) -> int:
    if der[at] != _SEQUENCE:
        raise ValueError("no sequence")
    return _read(der, at)[0]


def _read(der: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the element at a place begins, and where it ends."""
    size, start = der[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, start = int.from_bytes(der[start : start + count]), start + count
    if start + size > len(der):
        raise ValueError("cut off")
    return start, start + size


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
