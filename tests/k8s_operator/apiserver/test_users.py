"""Users, and certificates of members, on a real API server: Secrets as Kubernetes keeps them."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.token_review import account_of
from imago_operator.certificates.state import (
    SeenCertificates,
    SeenClients,
    authority_of,
    certificate_of,
)
from imago_operator.issuing.writing import secret_of
from imago_operator.kube.credentials import from_file
from imago_operator.kube.http import ApiServer
from imago_operator.kube.objects import Kubernetes
from imago_operator.kube.resources import RESOURCES
from imago_operator.manifests.config import registry_user_secret
from imago_operator.model import names
from imago_operator.model.actions import CertificateWork, Certify
from imago_operator.model.desired import Desired, OperatorInfo, desired_of
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.user import UserReconciler
from imago_operator.spec.cluster.zookeeper import RegistryAccess
from imago_operator.spec.kinds import CLUSTER, USER
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.fake_contents_port import FakeContentsPort

if TYPE_CHECKING:
    from imago_testing.kubernetes.api_server import ApiServerProcess

pytestmark = [pytest.mark.apiserver]

NAMESPACE = "users"
LOOKS = 5


@pytest.fixture(scope="module")
def namespace(api: ApiServerProcess) -> str:
    """A namespace with a cluster that checks rights."""
    name = api.namespace(NAMESPACE)
    put(api, manifest(CLUSTER.name, {"spec.authorization": {"type": "Simple"}}))
    return name


def put(api: ApiServerProcess, made: dict[str, Any]) -> dict[str, Any]:
    metadata = {**made["metadata"], "namespace": NAMESPACE}
    kept: dict[str, Any] = api.must(
        "POST", RESOURCES[made["kind"]].path(NAMESPACE), {**made, "metadata": metadata}
    )
    return kept


def look(api: ApiServerProcess, brokers: FakeContentsPort, name: str) -> None:
    """Have the operator look at a user a few times, with the time of now."""

    async def inside() -> None:
        async with ApiServer(from_file(api.kubeconfig())) as session:
            stage = Stage(brokers)
            context = stage.context(kube=Kubernetes(session), now=lambda: datetime.now(UTC))
            reconciler = UserReconciler(context, lambda: f"password-{len(brokers.calls)}")
            for _ in range(LOOKS):
                await reconciler.reconcile(ObjectKey(USER.name, NAMESPACE, name))

    asyncio.run(inside())


def secret(api: ApiServerProcess, name: str) -> dict[str, str]:
    found = api.must("GET", RESOURCES["Secret"].path(NAMESPACE, name))
    return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}


def test_a_user_from_birth_to_end(api: ApiServerProcess, namespace: str) -> None:
    brokers = FakeContentsPort()
    put(api, manifest(USER.name, {"spec.userName": "ann"}, "ann"))
    look(api, brokers, "ann")
    first = secret(api, "ann")
    assert (first["username"], brokers.passwords["ann"]) == ("ann", (first["password"],))
    assert "password.next" not in first, "what was applied before is taken away again"
    path = RESOURCES[USER.name].path(namespace, "ann")
    calls = len(brokers.calls)
    look(api, brokers, "ann")
    assert len(brokers.calls) == calls

    note = {"metadata": {"annotations": {"imago.dev/force-renew": "1"}}}
    api.must("PATCH", path, note, content="application/merge-patch+json")
    look(api, brokers, "ann")
    second = secret(api, "ann")
    assert brokers.passwords["ann"] == (second["password"], first["password"])
    told = {"data": {"mine": base64.b64encode(b"x").decode()}}
    kept = RESOURCES["Secret"].path(namespace, "ann")
    api.must("PATCH", kept, told, content="application/merge-patch+json")
    look(api, brokers, "ann")
    assert secret(api, "ann")["mine"] == "x", "entries of others stay"

    api.must("DELETE", path)
    assert api.must("GET", path)["metadata"]["deletionTimestamp"], "it is held"
    look(api, brokers, "ann")
    assert brokers.users_by_name == {}
    assert api.call("GET", path)[0] == 404


def test_an_authority_is_replaced_on_a_server_that_keeps_account_of_fields(
    api: ApiServerProcess, namespace: str
) -> None:
    stored = put(api, manifest(CLUSTER.name, {"spec.tls": {}}, "certified"))
    desired = desired_of(stored, OperatorInfo(version="1.0.0"))
    assert isinstance(desired, Desired)
    steps = (
        Certify(CertificateWork.NEW_AUTHORITY),
        Certify(CertificateWork.ISSUE, 0),
        Certify(CertificateWork.NEXT_AUTHORITY),
        Certify(CertificateWork.TRUST, 0),
        Certify(CertificateWork.SWITCH_AUTHORITY),
        Certify(CertificateWork.ISSUE, 0),
        Certify(CertificateWork.DROP_AUTHORITY),
        Certify(CertificateWork.TRUST, 0),
    )
    begun = datetime.now(UTC)

    async def inside() -> None:
        async with ApiServer(from_file(api.kubeconfig())) as session:
            kube = Kubernetes(session)
            for number, step in enumerate(steps):
                now = begun + number * timedelta(days=1)  # for longer than authorities overlap
                authority = await kube.get("Secret", namespace, "certified-ca")
                member = certificate_of(await kube.get("Secret", namespace, "certified-s0-tls"))
                seen = SeenCertificates(
                    authority=authority_of(authority), members={0: member} if member else {}
                )
                await kube.apply(secret_of(desired, step, seen, now))

    asyncio.run(inside())
    authority, member = secret(api, "certified-ca"), secret(api, "certified-s0-tls")
    assert set(authority) == {"tls.crt", "tls.key", "ca.crt"}, "the next one's entries are gone"
    assert member["ca.crt"] == authority["ca.crt"] == authority["tls.crt"]
    assert member["tls.crt"].endswith(authority["tls.crt"])


def test_the_brokers_user_in_zookeeper_is_made_once(api: ApiServerProcess, namespace: str) -> None:
    spec = {"spec.zookeeper": {"managed": {"authentication": "Enforcing"}}}
    stored = put(api, manifest(CLUSTER.name, spec, "closed"))
    desired = desired_of(stored, OperatorInfo(version="1.0.0"))
    assert isinstance(desired, Desired)
    assert desired.registry_access is RegistryAccess.ENFORCING
    name = names.registry_user("closed")

    async def inside() -> None:
        async with ApiServer(from_file(api.kubeconfig())) as session:
            kube = Kubernetes(session)
            for password in ("first", "second"):
                await kube.create(registry_user_secret(desired, name, password))

    asyncio.run(inside())
    assert secret(api, name) == {"username": "imago", "password": "first"}
    kept = api.must("GET", RESOURCES["Secret"].path(namespace, name))
    assert "ownerReferences" not in kept["metadata"], "it outlives the cluster, as claims do"


def sign_for_clients(api: ApiServerProcess) -> None:
    """Make a cluster whose authority for clients is there."""
    stored = put(api, manifest(CLUSTER.name, {"spec.tls": {"clientsCa": {}}}, "shown"))
    desired = desired_of(stored, OperatorInfo(version="1.0.0"))
    assert isinstance(desired, Desired)

    async def inside() -> None:
        async with ApiServer(from_file(api.kubeconfig())) as session:
            step = Certify(CertificateWork.NEW_AUTHORITY, clients=True)
            seen = SeenCertificates(clients=SeenClients())
            await Kubernetes(session).apply(secret_of(desired, step, seen, datetime.now(UTC)))

    asyncio.run(inside())


def test_a_certificate_and_what_is_noted_beside_it(api: ApiServerProcess, namespace: str) -> None:
    sign_for_clients(api)
    said = {"spec.clusterRef": {"name": "shown"}, "spec.authentication": {"type": "Tls"}}
    put(api, manifest(USER.name, {"spec.userName": "cid", **said}, "cid"))
    brokers = FakeContentsPort()
    look(api, brokers, "cid")
    first = secret(api, "cid")
    assert first["tls.crt"].endswith(secret(api, "shown-clients-ca")["tls.crt"])
    assert "PRIVATE KEY" in first["tls.key"]
    path, kept = (RESOURCES[kind].path(namespace, "cid") for kind in (USER.name, "Secret"))
    status = api.must("GET", path)["status"]
    assert status["certificate"]["notAfter"] > status["nextRotation"] > status["lastRotation"]
    before = api.must("GET", kept)["metadata"]
    assert "imago.dev/signer" in before["annotations"]
    look(api, brokers, "cid")
    assert api.must("GET", kept)["metadata"]["resourceVersion"] == before["resourceVersion"]

    patch = {"spec": {"authentication": {"type": "Password"}}}
    api.must("PATCH", path, patch, content="application/merge-patch+json")
    look(api, brokers, "cid")
    then = secret(api, "cid")
    assert brokers.passwords["cid"] == (then["password"],)
    assert not {"tls.crt", "tls.key"} & set(then)
    assert "imago.dev/signer" not in (api.must("GET", kept)["metadata"].get("annotations") or {})
    assert "certificate" not in api.must("GET", path)["status"]


def test_a_token_is_the_accounts_for_its_audience_alone(
    api: ApiServerProcess, namespace: str
) -> None:
    """What brokers send is what a real server answers."""
    accounts = RESOURCES["ServiceAccount"].path(namespace)
    api.must("POST", accounts, {"metadata": {"name": "billing"}})
    asked = {"spec": {"audiences": ["imago"], "expirationSeconds": 600}}
    made = api.must("POST", f"{accounts}/billing/token", asked)
    for audience, user in (("imago", f"billing@{namespace}"), ("other", "")):
        spec = {"token": made["status"]["token"], "audiences": [audience]}
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": spec,
        }
        answer = api.must("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert account_of(answer, audience) == user
