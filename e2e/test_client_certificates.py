"""A cluster serves who shows a certificate: one is made, used, replaced, and its user deleted."""

from __future__ import annotations

import base64
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters
from imago_e2e.clients import POD, Load, drivers_in_pod
from imago_e2e.kube import is_ready, until
from imago_e2e.operator import condition, until_ready
from imago_testing.interop.drivers import ROCKETMQ5
from imago_testing.interop.pairs import rocketmq_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

NAMESPACE, NAME, USER = "e2e-certificates", "shown", "ann"
OVERLAP: Final = "40s"
"""Longer than files in pods take to follow their Secrets on the suite's own nodes (10 s)."""
REPLACED_SECONDS_MAX: Final = 300
SOON_SECONDS: Final = 5
FOLDER: Final = "/tmp/ann"
PROPERTIES: Final = f"""\
tls.test.mode.enable=false
tls.client.authServer=true
tls.client.trustCertPath={FOLDER}/ca.crt
tls.client.certPath={FOLDER}/tls.crt
tls.client.keyPath={FOLDER}/tls.key
"""
FOLLOWER: Final = """\
import asyncio, hashlib, pathlib, sys
from imago_client import Client, ClientConfig, Message
have = pathlib.Path("/user")
bootstrap = (have / "bootstrap").read_text().strip()
shown = {} if sys.argv[2:] else {
    "tls_certificate_file": str(have / "tls.crt"), "tls_key_file": str(have / "tls.key"),
}
config = ClientConfig(bootstrap=(bootstrap,), tls_ca_file=str(have / "ca.crt"), **shown)
async def main():
    sent = wrong = 0
    while True:
        try:
            async with Client(config) as client:
                producer = client.producer()
                for _ in range(20):
                    await producer.send(Message(sys.argv[1], b"x"))
                    sent += 1
                    await asyncio.sleep(0.05)
        except Exception as error:
            wrong += 1
            print("ERROR", type(error).__name__, error, flush=True)
            await asyncio.sleep(0.5)
        which = hashlib.sha256((have / "tls.crt").read_bytes()).hexdigest()[:8]
        print("SENT", sent, wrong, which, flush=True)
        if shown == {}:
            return
asyncio.run(main())
"""
"""Connects anew all the time with what the user's Secret says, mounted as files."""


@pytest.fixture(name="shown", scope="module")
def _shown(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster that checks rights, and whose clients all show certificates."""
    assert operator.installed()
    managed = {"replicas": 1, "storage": {"size": "1Gi"}}
    tls = {"clients": "Enforcing", "members": "Enforcing", "clientsCa": {"overlap": OVERLAP}}
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        NAME,
        zookeeper={"managed": managed},
        authorization={"type": "Simple"},
        tls=tls,
    )
    given["spec"]["brokers"]["config"]["tls.client_auth"] = "required"
    yield clusters.make(kube, given)
    kube.delete_namespace(NAMESPACE)


def _user(topic: str) -> dict[str, Any]:
    def allow(kind: str, *operations: str) -> dict[str, Any]:
        resource = {"type": kind, "name": topic, "patternType": "prefix"}
        return {"resource": resource, "operations": list(operations)}

    may = ("publish", "subscribe", "create", "alter", "describe")
    return {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": "ImagoUser",
        "metadata": {"name": USER, "namespace": NAMESPACE},
        "spec": {
            "clusterRef": {"name": NAME},
            "authentication": {"type": "Tls"},
            "authorization": {"acls": [allow("Topic", *may), allow("Group", "subscribe")]},
        },
    }


def _secret(kube: Kube, name: str) -> dict[str, str]:
    data = kube.get("secret", name, "-n", NAMESPACE)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def _follow(kube: Kube, image: str, topic: str) -> None:
    container = {
        "name": "follower",
        "image": image,
        "command": ["python3", "-u", "-c", FOLLOWER, topic],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "user", "mountPath": "/user", "readOnly": True}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "user", "secret": {"secretName": USER, "defaultMode": 0o444}}],
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
    }
    metadata = {"name": "follower", "namespace": NAMESPACE}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    until(
        lambda: is_ready(kube.get("pod", "follower", "-n", NAMESPACE)),
        "the pod with the user's files is ready",
        seconds_max=60,
    )


def _told(kube: Kube) -> tuple[int, str, list[str]]:
    """Return how often the follower sent, which certificate it has, its errors."""
    lines = kube.run("logs", "follower", "-n", NAMESPACE).splitlines()
    counts = [line.split() for line in lines if line.startswith("SENT")]
    last = counts[-1] if counts else ["", "0", "0", ""]
    return int(last[1]), last[3], [line for line in lines if line.startswith("ERROR")]


@contextmanager
def _original(kube: Kube, shown: Brokers, pod: str, folder: Path, topic: str) -> Iterator[Load]:
    """Have the original client send and receive with the certificate, as its files."""
    files = {name: _secret(kube, USER)[name] for name in ("ca.crt", "tls.crt", "tls.key")}
    kube.run("exec", "-n", pod, POD, "--", "mkdir", "-p", FOLDER)
    for name, text in (files | {"tls.properties": PROPERTIES}).items():
        write = ("sh", "-c", f"umask 077; cat > {FOLDER}/{name}")
        kube.run("exec", "-i", "-n", pod, POD, "--", *write, text=text)
    flags = ("-Dtls.enable=true", f"-Dtls.config.file={FOLDER}/tls.properties")
    with ExitStack() as stack:
        started = drivers_in_pod(pod, folder, (ROCKETMQ5,), flags=flags)
        driver = stack.enter_context(started)[ROCKETMQ5]
        shown.make_topic(topic)
        stream, reader = rocketmq_pair(stack, driver, 5, shown.bootstrap, topic, make=False)
        stack.enter_context(reader)
        stack.enter_context(stream)
        running = Load([(stream, reader)])
        running.go_on(100)
        yield running


def _replace_authority(kube: Kube, shown: Brokers) -> float:
    """Have another authority sign for clients; return after how long the former is forgotten."""
    authority = f"{NAME}-clients-ca"
    former, certificate = _secret(kube, authority)["tls.crt"], _told(kube)[1]
    kube.run("annotate", "imc", NAME, "-n", NAMESPACE, "imago.dev/force-renew-clients-ca=1")

    def replaced() -> bool:
        said = condition(kube, "imc", NAMESPACE, NAME, "CertificatesValid")
        return said.get("reason") == "Issued" and former not in _secret(kube, authority)["ca.crt"]

    seconds = until(replaced, "another authority signs", seconds_max=REPLACED_SECONDS_MAX)
    assert former not in _secret(kube, USER)["tls.crt"]
    assert _told(kube)[1] != certificate
    assert shown.in_sync() == 3
    return seconds


def test_a_client_is_known_by_its_certificate_until_its_user_is_deleted(
    kube: Kube, shown: Brokers, client_pod: str, topic: str, tmp_path: Path, account: list[str]
) -> None:
    kube.apply(_user(topic))
    until_ready(kube, "imu", NAMESPACE, USER, seconds_max=30)
    pods, named = shown.uids(), f"{topic}-python"
    image = shown.pods()[0]["spec"]["containers"][0]["image"]
    with _original(kube, shown, client_pod, tmp_path, f"{topic}-java") as running:
        shown.make_topic(named)
        _follow(kube, image, named)
        until(lambda: _told(kube)[0] > 50, "the follower sends", seconds_max=60)
        stranger = ("python3", "-u", "-c", FOLLOWER, named, "without")
        said = kube.run("exec", "-n", NAMESPACE, "follower", "--", *stranger)
        assert "ERROR" in said, "who shows no certificate is not served"
        assert "SENT 0 1" in said
        seconds = _replace_authority(kube, shown)
        sent = _told(kube)[0]
        until(lambda: _told(kube)[0] > sent + 60, "it sends with the next one", seconds_max=60)
        running.go_on(100)
        assert _told(kube)[2] == []
        account.append(f"another authority for clients after {seconds:.0f} s: {running.finish()}")
        running.unharmed()
    began = time.monotonic()
    kube.run("delete", "imu", USER, "-n", NAMESPACE, "--wait=false")
    until(lambda: bool(_told(kube)[2]), "the follower is refused", seconds_max=SOON_SECONDS)
    account.append(f"deleted: refused after {time.monotonic() - began:.1f} s")
    until(lambda: len(_told(kube)[2]) > 1, "it has said how many it had sent", seconds_max=60)
    sent = _told(kube)[0]
    until(lambda: len(_told(kube)[2]) > 5, "it stays refused", seconds_max=60)
    assert _told(kube)[0] == sent
    assert shown.uids() == pods, "no pod of the cluster was disturbed"
