"""A real server of ZooKeeper, begun as the operator's pods begin, with the operator's certificates.

Kubernetes' part is played: files of a Secret, and the folders of a pod.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from imago_broker.app import Broker
from imago_operator.certificates.state import (
    ZOOKEEPER,
)
from imago_operator.manifests.config import registry_user_secret
from imago_operator.manifests.zookeeper import config_files, zookeeper_template
from imago_operator.model import names
from imago_operator.model.actions import CertificateWork, Certify
from imago_operator.model.secret_data import decoded
from imago_testing.operated.played_pod import in_pod
from imago_testing.operated.resources import wanted
from imago_testing.processes.managed_zookeeper import ManagedZooKeeper
from imago_testing.processes.mounted_secret import MountedSecret
from imago_testing.processes.operated_secrets import Secrets
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_operator.model.desired import Desired

pytestmark = [pytest.mark.zookeeper]
NOW = datetime.now(UTC)
NEXT = (
    Certify(CertificateWork.NEXT_AUTHORITY),
    Certify(CertificateWork.TRUST, ZOOKEEPER),
    Certify(CertificateWork.SWITCH_AUTHORITY),
    Certify(CertificateWork.ISSUE, ZOOKEEPER),
)


def cluster(tls: str) -> Desired:
    managed = {"replicas": 1, "tls": tls}
    return wanted(
        {"spec.brokers.replicasPerShard": 1, "spec.zookeeper": {"managed": managed}},
    )


@contextmanager
def serving(desired: Desired, folder: Path) -> Iterator[tuple[ManagedZooKeeper, Secrets]]:
    """Run the server of a cluster; its Secret is in the folder `secret`."""
    secrets = Secrets(desired)
    mounted = MountedSecret(folder / "secret")
    mounted.write(secrets.servers)
    managed = desired.spec.zookeeper.managed
    assert managed is not None
    template = zookeeper_template(desired, managed)
    server = ManagedZooKeeper(folder / "server", template, config_files(desired, managed), mounted)
    try:
        server.start()
        yield server, secrets
    finally:
        server.stop()


def shown(server: ManagedZooKeeper) -> str:
    """Return the certificate that the server shows now."""
    return ssl.get_server_certificate(("127.0.0.1", server.secure), timeout=10)


def verifies(server: ManagedZooKeeper, trusted: str) -> bool:
    """Whether these authorities have signed for the server, by its name for brokers."""
    context = ssl.create_default_context(cadata=trusted)
    name = f"{names.zookeeper('demo')}.mq.svc"
    try:
        with (
            socket.create_connection(("127.0.0.1", server.secure), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=name) as secure,
        ):
            return secure.version() in ("TLSv1.2", "TLSv1.3")
    except ssl.SSLCertVerificationError:
        return False


def accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def client(server: ManagedZooKeeper, ca_file: str, **options: Any) -> Iterator[KazooClient]:
    made = KazooClient(f"localhost:{server.secure}", use_ssl=True, ca=ca_file, **options)
    made.start(timeout=50)
    try:
        yield made
    finally:
        made.stop()
        made.close()


@pytest.mark.parametrize(("tls", "plain"), [("Permissive", True), ("Enforcing", False)])
def test_a_broker_is_served_with_tls_and_others_as_the_spec_says(
    tmp_path: Path, tls: str, plain: bool
) -> None:
    desired = cluster(tls)
    with serving(desired, tmp_path) as (server, secrets):
        assert verifies(server, secrets.servers["ca.crt"])
        assert not verifies(server, Secrets(desired).servers["ca.crt"]), "another authority's"
        # What is bound to 127.0.0.1 alone is there for nobody but the pod itself.
        assert accepts("127.0.0.2", server.secure)
        assert accepts("127.0.0.2", server.plain) is plain
        user = decoded(registry_user_secret(desired, names.registry_user("demo"), "made up"))
        files = {
            names.registry_user("demo"): user,
            names.zookeeper_certificate("demo"): secrets.servers,
        }
        config = in_pod(desired, files, tmp_path / "pod", connect=f"localhost:{server.secure}")
        assert config.zookeeper.tls_ca_file.endswith("/etc/imago/zookeeper-tls/ca.crt")
        told = [path.name for path in (tmp_path / "pod/etc/imago/zookeeper-tls").iterdir()]
        assert told == ["ca.crt"], "the key is for servers"
        broker = Broker(config)

        async def leads() -> None:
            await broker.start()
            await broker.stop()

        asyncio.run(leads())
        who = [("digest", f"{user['username']}:{user['password']}")]
        with client(server, config.zookeeper.tls_ca_file, auth_data=who) as insider:
            assert insider.exists("/imago/demo/id"), "it was there"


@pytest.mark.full
def test_a_server_shows_what_the_kubelet_writes_without_a_restart(tmp_path: Path) -> None:
    """Through the replacement of the authority; who is connected stays connected."""
    desired = cluster("Enforcing")
    with serving(desired, tmp_path) as (server, secrets):
        before, pid, former = shown(server), server.pid, secrets.servers["ca.crt"]
        ca_file = tmp_path / "ca.crt"
        ca_file.write_text(former)
        states: list[str] = []
        with client(server, str(ca_file)) as connected:
            connected.add_listener(states.append)
            secrets.do(*NEXT)
            server.mounted.write(secrets.servers)
            wait_until(lambda: shown(server) != before, seconds_max=60, what="another certificate")
            assert verifies(server, secrets.servers["ca.crt"]), "of the next authority"
            assert not verifies(server, former)
            assert connected.exists("/zookeeper")
            assert states == []
        assert server.pid == pid
