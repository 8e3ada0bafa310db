"""Clients' certificates, from the operator's authority to a real broker: none is ever refused.

A cluster and its users are worked on by the operator's own reconcilers; pods and clients follow
their Secrets some time later.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_broker.server.session import common_name
from imago_broker.server.tls.tls_certificates import TlsFiles, load
from imago_operator.certificates import clients as certificates_of_clients
from imago_operator.certificates.state import (
    AuthorityPhase,
    SeenAuthority,
    SeenCertificates,
    SeenClients,
    SeenHolder,
    pem_parts,
)
from imago_operator.issuing import making
from imago_operator.issuing.making import Validity
from imago_operator.model.secret_data import coded, decoded
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.user import UserReconciler
from imago_testing.kubernetes.custom_resources import USER, manifest
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.fake_contents_port import FakeContentsPort
from imago_testing.operated.resources import resource, wanted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLIENTS: Final = {"overlap": "30s"}
LAG_S: Final = 20
"""How long after its Secret a pod's file follows, a broker's or a client's: less than `overlap`."""
SECRET: Final = "demo-clients-ca"
USERS: Final = ("ann", "bob")


@dataclass
class Clients(OperatedCluster):
    """A cluster that signs for clients, with users, and what files said lately."""

    past: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Each second: whom brokers are to trust, and who has signed for whom."""

    def start(self) -> None:
        super().start()
        context = self.reconciler._context
        self.contents = getattr(self, "contents", FakeContentsPort())

        async def reach(namespace: str, cluster: str) -> Any:
            reached = await self.brokers(namespace, cluster)
            return replace(reached, contents=self.contents, brokers=("http://b",))

        found = replace(context, brokers=reach)  # type: ignore[arg-type]  # nobody asks for pods
        self.users = UserReconciler(found, lambda: "password")

    def user(self, name: str, **authentication: Any) -> None:
        said = {"spec.userName": name, "spec.authentication": {"type": "Tls"} | authentication}
        made = manifest(USER, said, name=name)
        made["metadata"]["namespace"] = "mq"
        self.kubernetes.put(made)

    async def second(self) -> None:
        """Let everybody look once, then a second pass."""
        for name in USERS:
            if self.kubernetes.find(USER, "mq", name) is not None:
                await self.users.reconcile(ObjectKey(USER, "mq", name))
        await self.look()
        self.past.append((self.secret(SECRET).get("ca.crt", ""), self.signers()))
        self._nobody_is_refused()

    async def for_(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.second()

    def _nobody_is_refused(self) -> None:
        """Whoever is late: each client's file, and each broker's, is one of the last seconds'."""
        late = self.past[-LAG_S:]
        for trusted, _ in late:
            for _, shown in late:
                assert all(signer in trusted for signer in shown.values() if trusted)

    def secret(self, name: str) -> dict[str, str]:
        return decoded(self.kubernetes.find("Secret", "mq", name) or {})

    def signers(self) -> dict[str, str]:
        """Return who has signed, by user."""
        found = {name: pem_parts(self.secret(name).get("tls.crt", "")) for name in USERS}
        return {name: parts[1] for name, parts in found.items() if parts}

    def phase(self) -> str:
        found = self.kubernetes.find("Secret", "mq", SECRET)
        return str(found["metadata"]["annotations"]["imago.dev/ca-phase"]) if found else ""

    def ready(self, name: str) -> tuple[str, str] | None:
        found = self.kubernetes.find(USER, "mq", name)
        conditions: list[dict[str, str]] = (found or {}).get("status", {}).get("conditions", [])
        said = (c for c in conditions if c["type"] == "Ready")
        return next(((c["status"], c["reason"]) for c in said), None)


def clients(users: tuple[str, ...] = USERS, **said: Any) -> Clients:
    made = Clients(resource({"spec.tls": {"clientsCa": CLIENTS | said}}))
    made.world.now = datetime.now(UTC)  # brokers look at the certificates
    for name in users:
        made.user(name)
    return made


def named(folder: Path, brokers: Mapping[str, str], trusted: str, user: dict[str, str]) -> str:
    """Return whom a broker with these files takes a client for that has those of a user."""
    files = {**brokers, "clients.crt": trusted}
    for name, text in files.items():
        (folder / name).write_text(text)
    for name in ("tls.crt", "tls.key"):
        (folder / f"user-{name}").write_text(user[name])
    loaded = load(
        TlsFiles(
            certificate=str(folder / "tls.crt"),
            key=str(folder / "tls.key"),
            ca=str(folder / "ca.crt"),
            client_ca=str(folder / "clients.crt"),
            client_auth="required",
        )
    )
    client = ssl.create_default_context(cadata=user["ca.crt"])
    client.load_cert_chain(str(folder / "user-tls.crt"), str(folder / "user-tls.key"))
    shown = shake_hands(loaded.server, client)
    return common_name(shown, loaded.server.client_issuers)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> Any:
    """Return the certificate that the client shows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    host = "demo-s0-0.demo-brokers.mq.svc"
    asking = client.wrap_bio(to_client, to_server, server_hostname=host)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(8):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return answering.getpeercert()


def test_a_user_gets_a_certificate_that_brokers_take_for_its_own(tmp_path: Path) -> None:
    cluster = clients()
    asyncio.run(cluster.for_(10))
    assert cluster.ready("ann") == ("True", "InSync")
    brokers, trusted = cluster.secret("demo-s0-tls"), cluster.secret(SECRET)["ca.crt"]
    ann = cluster.secret("ann")
    assert named(tmp_path, brokers, trusted, ann) == "ann"
    assert "password" not in ann
    assert cluster.contents.users_by_name["ann"].signs is False
    # A member's certificate lets a broker in, and is no user's.
    member = {name: brokers[name] for name in ("tls.crt", "tls.key")}
    assert named(tmp_path, brokers, trusted, ann | member) == ""
    status = cluster.kubernetes.find(USER, "mq", "ann")["status"]  # type: ignore[index]
    assert status["credentialsGeneration"] == 1
    assert status["certificate"]["notAfter"] > status["nextRotation"]


@pytest.mark.parametrize("lost", [False, True])
def test_another_authority_takes_over_and_no_client_is_ever_refused(lost: bool) -> None:
    cluster = clients()
    asyncio.run(cluster.for_(40))
    first, pods = cluster.secret(SECRET)["tls.crt"], cluster.world.pods.keys()
    if lost:
        cluster.kubernetes.drop("Secret", "mq", SECRET)
    else:
        cluster.annotate(**{"force-renew-clients-ca": "1"})
    phases: set[str] = set()

    async def until_replaced() -> None:
        for _ in range(400):
            await cluster.second()
            phases.add(cluster.phase())
            trusted = cluster.secret(SECRET).get("ca.crt", first)
            if cluster.phase() == AuthorityPhase.STABLE and first not in trusted:
                return
        raise AssertionError((phases, cluster.cluster["status"]))

    asyncio.run(until_replaced())
    assert phases >= {AuthorityPhase.REPLACING, AuthorityPhase.STABLE}
    assert set(cluster.signers().values()) == {cluster.secret(SECRET)["tls.crt"]}
    assert cluster.world.pods.keys() == pods
    asyncio.run(cluster.for_(40))
    assert cluster.condition("CertificatesValid") == ("True", "Issued")
    assert not cluster.errors


@pytest.mark.full
def test_the_former_is_trusted_as_long_as_somebody_has_its_certificate() -> None:
    cluster = clients()
    asyncio.run(cluster.for_(40))
    first = cluster.secret(SECRET)["tls.crt"]
    bob = cluster.kubernetes.find(USER, "mq", "bob")
    assert bob is not None
    cluster.kubernetes.put(_paused(bob, "true"))
    cluster.annotate(**{"force-renew-clients-ca": "1"})
    asyncio.run(cluster.for_(200))
    assert cluster.phase() == AuthorityPhase.REPLACING
    assert first in cluster.secret(SECRET)["ca.crt"]
    assert cluster.condition("CertificatesValid") == ("True", "ReplacingClientsAuthority")
    [said] = [
        c for c in cluster.cluster["status"]["conditions"] if c["type"] == "CertificatesValid"
    ]
    assert "mq/bob" in said["message"]
    assert "mq/ann" not in said["message"]
    bob = cluster.kubernetes.find(USER, "mq", "bob")
    assert bob is not None
    cluster.kubernetes.put(_paused(bob, "false"))
    asyncio.run(cluster.for_(100))
    assert cluster.phase() == AuthorityPhase.STABLE
    assert first not in cluster.secret(SECRET)["ca.crt"]


def _paused(user: dict[str, Any], said: str) -> dict[str, Any]:
    metadata = {**user["metadata"], "annotations": {"imago.dev/pause-reconciliation": said}}
    return {**user, "metadata": metadata}


def test_a_message_names_some_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates_of_clients, "NAMED_MAX", 2)
    holders = tuple(SeenHolder(name=f"mq/u{n}", signer="former") for n in range(5))
    authority = SeenAuthority(
        data={}, signer="next", trusted="both", phase=AuthorityPhase.REPLACING
    )
    clients_seen = SeenClients(authority=authority, trusted="both", holders=holders)
    found = certificates_of_clients.plan(
        wanted({"spec.tls": {"clientsCa": {}}}),
        SeenCertificates(clients=clients_seen),
        datetime(2026, 1, 2, tzinfo=UTC),
    )
    [finding] = found.findings
    assert "mq/u0, mq/u1 and 3 more" in finding.message
    assert found.actions == ()


def test_a_certificate_is_replaced_before_its_end_and_on_order() -> None:
    cluster = clients(users=())
    cluster.user("ann", validity="48h", renewBefore="24h")
    asyncio.run(cluster.for_(10))
    first = cluster.secret("ann")["tls.crt"]
    cluster.world.now += timedelta(hours=25)
    asyncio.run(cluster.for_(3))
    second = cluster.secret("ann")["tls.crt"]
    assert second != first
    found = cluster.kubernetes.find(USER, "mq", "ann")
    assert found is not None
    metadata = {**found["metadata"], "annotations": {"imago.dev/force-renew": "1"}}
    cluster.kubernetes.put({**found, "metadata": metadata})
    asyncio.run(cluster.for_(3))
    third = cluster.secret("ann")["tls.crt"]
    assert third != second
    asyncio.run(cluster.for_(20))
    assert cluster.secret("ann")["tls.crt"] == third


def test_a_certificate_that_ends_soon_is_not_replaced_all_the_time() -> None:
    """Whole days count, and clocks differ: 24 h may be less than 23 h and 50 min more."""
    cluster = clients(users=())
    cluster.user("ann", validity="24h", renewBefore="23h50m")
    asyncio.run(cluster.for_(10))
    first = cluster.secret("ann")["tls.crt"]
    asyncio.run(cluster.for_(20))
    assert cluster.secret("ann")["tls.crt"] == first
    cluster.world.now += timedelta(hours=12)
    asyncio.run(cluster.for_(3))
    assert cluster.secret("ann")["tls.crt"] != first


@pytest.mark.full
def test_an_authority_of_somebody_else(tmp_path: Path) -> None:
    """Without a key it checks what clients of yours show; with one, users get certificates."""
    valid = Validity(datetime.now(UTC), 30)
    first, second = making.authority("mine", valid), making.authority("next", valid)
    cluster = clients(mode="UserProvided", secretName="mine")
    asyncio.run(cluster.for_(10))
    assert cluster.condition("CertificatesValid") == ("False", "ClientsAuthorityMissing")
    assert cluster.ready("ann") == ("False", "ClientsAuthorityMissing")
    provide(cluster, **{"ca.crt": first.certificate})
    asyncio.run(cluster.for_(40))
    assert cluster.condition("CertificatesValid") == ("True", "Issued")
    assert cluster.ready("ann") == ("False", "ClientsAuthorityMissing")
    keys = {"tls.crt": first.certificate, "tls.key": first.key}
    provide(cluster, **keys, **{"ca.crt": first.certificate})
    asyncio.run(cluster.for_(10))
    ann = cluster.secret("ann")
    brokers = cluster.secret("demo-s0-tls")
    assert named(tmp_path, brokers, first.certificate, ann) == "ann"
    # Both at once, without waiting: users have theirs once brokers must know the next one.
    cluster.past.clear()
    keys = {"tls.crt": second.certificate, "tls.key": second.key}
    provide(cluster, **keys, **{"ca.crt": first.certificate + second.certificate})
    asyncio.run(cluster.for_(LAG_S))
    assert cluster.signers()["ann"] == first.certificate
    asyncio.run(cluster.for_(20))
    assert set(cluster.signers().values()) == {second.certificate}
    assert cluster.kubernetes.find("Secret", "mq", SECRET) is None


def provide(cluster: Clients, **entries: str) -> None:
    made = {"kind": "Secret", "type": "Opaque", "metadata": {"name": "mine", "namespace": "mq"}}
    cluster.kubernetes.put({**made, "data": coded(entries)})


def test_without_an_authority_a_user_says_what_is_missing() -> None:
    cluster = Clients(resource({"spec.tls": {}}))
    cluster.user("ann")
    asyncio.run(cluster.for_(5))
    assert cluster.ready("ann") == ("False", "ClientsAuthorityMissing")
    assert cluster.kubernetes.find("Secret", "mq", "ann") is None


def test_no_pod_restarts_before_there_is_an_authority() -> None:
    cluster = Clients(resource({"spec.tls": {}}))
    cluster.run()
    before = {pod.uid for pod in cluster.world.pods.values()}
    cluster.edit(tls={"clientsCa": {"mode": "UserProvided", "secretName": "forgotten"}})
    asyncio.run(cluster.for_(60))
    assert {pod.uid for pod in cluster.world.pods.values()} == before
    assert "forgotten" in str(cluster.cluster["status"]["progress"])
