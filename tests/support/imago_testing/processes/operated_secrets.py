"""Certificates of a cluster, as the operator writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from imago_operator.certificates.state import (
    ZOOKEEPER,
    SeenCertificates,
    authority_of,
    certificate_of,
)
from imago_operator.issuing.writing import secret_of
from imago_operator.model import names
from imago_operator.model.actions import CertificateWork, Certify
from imago_operator.model.secret_data import decoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.model.desired import Desired


class Secrets:
    """What the operator has written."""

    def __init__(self, desired: Desired) -> None:
        self._desired = desired
        self._kept: dict[str, Mapping[str, Any]] = {}
        self.do(Certify(CertificateWork.NEW_AUTHORITY), Certify(CertificateWork.ISSUE, ZOOKEEPER))

    def do(self, *works: Certify) -> None:
        for work in works:
            servers = certificate_of(self._kept.get(names.zookeeper_certificate("demo")))
            seen = SeenCertificates(
                authority=authority_of(self._kept.get(names.authority("demo"))),
                members={ZOOKEEPER: servers} if servers else {},
            )
            made = secret_of(self._desired, work, seen, datetime.now(UTC))
            self._kept[made["metadata"]["name"]] = made

    def member(self, shard: int) -> dict[str, str]:
        """Return what members of a shard have, of the same authority."""
        self.do(Certify(CertificateWork.ISSUE, shard))
        return decoded(self._kept[names.certificate("demo", shard)])

    @property
    def servers(self) -> dict[str, str]:
        return decoded(self._kept[names.zookeeper_certificate("demo")])
