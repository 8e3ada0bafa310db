"""Certificates as they are made: brokers take them for those of members, and no others."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from imago_broker.replication.links.member_tls import member_uri
from imago_broker.server.tls.tls_certificates import CertificateError, TlsFiles, load
from imago_operator.certificates.state import AuthorityPhase
from imago_operator.errors import BlockedError
from imago_operator.issuing import making
from imago_operator.issuing.making import IssuedPair, Validity
from imago_operator.model.secret_data import coded, decoded
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.resources import resource

if TYPE_CHECKING:
    from pathlib import Path


VALID = Validity(datetime.now(UTC), 30)


def operated(**tls: object) -> OperatedCluster:
    """Its clock is the machine's: certificates of another time are none to a broker."""
    cluster = OperatedCluster(resource({"spec.tls": tls, "spec.brokers.shards": 2}))
    cluster.world.now = datetime.now(UTC)
    return cluster


def files(folder: Path, cluster: OperatedCluster, shard: int, member: str) -> TlsFiles:
    secret = cluster.kubernetes.find("Secret", "mq", f"demo-s{shard}-tls")
    assert secret is not None
    for name, text in decoded(secret).items():
        (folder / name).write_text(text)
    return TlsFiles(
        certificate=str(folder / "tls.crt"),
        key=str(folder / "tls.key"),
        ca=str(folder / "ca.crt"),
        member=member,
    )


def test_brokers_take_them_for_those_of_their_shard_alone(tmp_path: Path) -> None:
    cluster = operated()
    cluster.run()
    assert cluster.condition("CertificatesValid") == ("True", "Issued")
    assert load(files(tmp_path, cluster, 1, member_uri("demo", 1))).expires_s > 0
    with pytest.raises(CertificateError, match="does not name"):
        load(files(tmp_path, cluster, 1, member_uri("demo", 0)))
    with pytest.raises(CertificateError, match="does not name"):
        load(files(tmp_path, cluster, 1, member_uri("other", 1)))


@pytest.mark.full
def test_a_replaced_authority_restarts_no_pod_and_is_trusted_no_more(tmp_path: Path) -> None:
    cluster = operated(ca={"overlap": "30s"})
    cluster.run()
    pods = {pod["metadata"]["uid"] for pod in cluster.kubernetes.all("Pod")}
    first = authority(cluster)
    cluster.annotate(**{"force-renew": "1"})

    async def until_replaced() -> set[str]:
        phases = set()
        for _ in range(300):
            await cluster.look()
            phases.add(phase(cluster))
            if phase(cluster) == AuthorityPhase.STABLE and authority(cluster) != first:
                return phases
        raise AssertionError(phases)

    assert asyncio.run(until_replaced()) == set(AuthorityPhase)
    cluster.run()
    assert {pod["metadata"]["uid"] for pod in cluster.kubernetes.all("Pod")} == pods
    made = files(tmp_path, cluster, 0, member_uri("demo", 0))
    assert load(made).expires_s > 0
    assert first not in (tmp_path / "ca.crt").read_text()
    assert not cluster.errors


@pytest.mark.full
def test_a_lost_authority_is_trusted_until_all_have_certificates_of_the_next(
    tmp_path: Path,
) -> None:
    """Its Secret was deleted: what members show is trusted by all of them at every moment."""
    cluster = operated(ca={"overlap": "30s"})
    cluster.run()
    lost = authority(cluster)
    cluster.kubernetes.drop("Secret", "mq", "demo-ca")

    async def until_replaced() -> None:
        for _ in range(300):
            await cluster.look()
            shown = [shown_by(cluster, tmp_path, shard) for shard in (0, 1)]
            for trusted, _ in shown:
                assert all(signer in trusted for _, signer in shown)
            if all(lost not in trusted for trusted, _ in shown):
                return
        raise AssertionError("the lost one is still in use")

    asyncio.run(until_replaced())
    cluster.run()
    assert phase(cluster) == AuthorityPhase.STABLE
    for shard in (0, 1):
        load(files(tmp_path, cluster, shard, member_uri("demo", shard)))
        assert shown_by(cluster, tmp_path, shard) == (authority(cluster), authority(cluster))
    assert not cluster.errors


def shown_by(cluster: OperatedCluster, folder: Path, shard: int) -> tuple[str, str]:
    """Return whom the members of a shard trust, and who signed what they show."""
    files(folder, cluster, shard, member_uri("demo", shard))
    end = "-----END CERTIFICATE-----\n"
    _, signer, _ = (folder / "tls.crt").read_text().split(end)
    return (folder / "ca.crt").read_text(), signer + end


def test_members_follow_an_authority_of_somebody_else(tmp_path: Path) -> None:
    first, second = making.authority("one", VALID), making.authority("two", VALID)
    cluster = operated(ca={"mode": "UserProvided", "secretName": "mine", "overlap": "30s"})
    cluster.run()
    assert cluster.condition("CertificatesValid") == ("False", "AuthorityMissing")
    provide(cluster, first, first.certificate)
    cluster.run()
    load(files(tmp_path, cluster, 0, member_uri("demo", 0)))
    provide(cluster, second, first.certificate + second.certificate)

    async def later() -> None:
        for _ in range(80):
            await cluster.look()

    asyncio.run(later())
    provide(cluster, second, second.certificate)
    cluster.run()
    for shard in (0, 1):
        load(files(tmp_path, cluster, shard, member_uri("demo", shard)))
        assert first.certificate not in (tmp_path / "ca.crt").read_text()
    assert cluster.kubernetes.find("Secret", "mq", "demo-ca") is None


def provide(cluster: OperatedCluster, signer: IssuedPair, trusted: str) -> None:
    entries = {"tls.crt": signer.certificate, "tls.key": signer.key, "ca.crt": trusted}
    metadata = {"name": "mine", "namespace": "mq"}
    made = {"kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata}
    cluster.kubernetes.put({**made, "data": coded(entries)})


def authority(cluster: OperatedCluster) -> str:
    found = cluster.kubernetes.find("Secret", "mq", "demo-ca")
    assert found is not None
    return decoded(found)["tls.crt"]


def phase(cluster: OperatedCluster) -> str:
    found = cluster.kubernetes.find("Secret", "mq", "demo-ca")
    assert found is not None
    return str(found["metadata"]["annotations"]["imago.dev/ca-phase"])


def test_what_no_certificate_can_name_is_said() -> None:
    signer = making.authority("demo", VALID)
    for wrong in ("WHAT:ever", "IP:one", "DNS:hörbar"):
        with pytest.raises(BlockedError, match="a name for the certificate a"):
            making.certificate("a", [wrong], VALID, signer)


def test_an_authority_that_cannot_sign_is_said() -> None:
    one, two = making.authority("one", VALID), making.authority("two", VALID)
    for wrong, said in (
        (IssuedPair(one.certificate, two.key), "not its certificate's"),
        (IssuedPair(one.certificate, "no key"), "cannot sign"),
        (IssuedPair("no certificate", one.key), "cannot sign"),
    ):
        with pytest.raises(BlockedError, match=said):
            making.client_certificate("a", VALID, wrong)


def test_keys_are_not_shown() -> None:
    signer = making.authority("demo", VALID)
    assert "PRIVATE" in signer.key
    assert "PRIVATE" not in repr(signer)
