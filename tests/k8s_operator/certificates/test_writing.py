"""Certificates as they are made: brokers take them for those of members, and no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.replication.links.member_tls import member_uri
from imago_broker.server.tls.tls_certificates import CertificateError, TlsFiles, load
from imago_operator.certificates.state import AuthorityPhase
from imago_operator.errors import BlockedError
from imago_operator.issuing import openssl
from imago_operator.model.secret_data import coded, decoded
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.resources import resource

if TYPE_CHECKING:
    from pathlib import Path


def operated(**tls: object) -> OperatedCluster:
    return OperatedCluster(resource({"spec.tls": tls, "spec.brokers.shards": 2}))


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
    async def made() -> tuple[openssl.IssuedPair, openssl.IssuedPair]:
        return await openssl.authority("one", 30), await openssl.authority("two", 30)

    first, second = asyncio.run(made())
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


def provide(cluster: OperatedCluster, signer: openssl.IssuedPair, trusted: str) -> None:
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


async def test_what_openssl_refuses_is_said() -> None:
    signer = await openssl.authority("demo", 1)
    with pytest.raises(BlockedError, match="openssl req"):
        await openssl.certificate("a", "WHAT:ever", 1, signer)


async def test_keys_are_not_shown() -> None:
    signer = await openssl.authority("demo", 1)
    assert "PRIVATE" in signer.key
    assert "PRIVATE" not in repr(signer)


async def test_without_openssl_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BlockedError, match="not in the operator's image"):
        await openssl.authority("demo", 1)
