"""A cluster that serves without TLS is encrypted while clients send, then has another authority."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters
from imago_e2e.clients import Load, drivers_in_pod
from imago_e2e.kube import until
from imago_e2e.operator import condition, until_ready
from imago_testing.interop.drivers import ROCKETMQ5
from imago_testing.interop.pairs import rocketmq_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

NAMESPACE, NAME = "e2e-tls", "plain"
CLIENT_PORT: Final = 10911
OVERLAP: Final = "40s"
"""Longer than files in pods take to follow their Secrets on the suite's own nodes (10 s)."""
ROLLED_SECONDS_MAX: Final = 240
ROTATED_SECONDS_MAX: Final = 300
NAMES_FOLLOWED: Final = ("-Dsun.net.inetaddr.ttl=1", "-Dsun.net.inetaddr.negative.ttl=0")
"""With TLS brokers are known by names; Java would keep the address of one for 30 s."""
SHOWN: Final = """\
import socket, ssl, sys
context = ssl.create_default_context(cadata=sys.stdin.read())
context.check_hostname = False
for host in sys.argv[2:]:
    with socket.create_connection((host, int(sys.argv[1])), timeout=5) as plain:
        with context.wrap_socket(plain) as served:
            print(host, served.version())
"""
"""Says which brokers show a certificate of these authorities; ends badly where one does not."""


@pytest.fixture(name="plain", scope="module")
def _plain(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster of three members without TLS, and without access control."""
    assert operator.installed()
    managed = {"replicas": 1, "storage": {"size": "1Gi"}}
    given = clusters.manifest(kube.namespace(NAMESPACE), NAME, zookeeper={"managed": managed})
    yield clusters.make(kube, given)
    kube.delete_namespace(NAMESPACE)


@contextmanager
def _sending(brokers: Brokers, pod: str, folder: Path, topic: str, *, tls: bool) -> Iterator[Load]:
    """Have the original client send and receive, with TLS or without."""
    flags = (*NAMES_FOLLOWED, f"-Dtls.enable={str(tls).lower()}")
    with ExitStack() as stack:
        started = drivers_in_pod(pod, folder, (ROCKETMQ5,), flags=flags)
        driver = stack.enter_context(started)[ROCKETMQ5]
        brokers.make_topic(topic)
        stream, reader = rocketmq_pair(stack, driver, 5, brokers.bootstrap, topic, make=False)
        stack.enter_context(reader)
        stack.enter_context(stream)
        running = Load([(stream, reader)])
        running.go_on(100)
        yield running


def _order(kube: Kube, brokers: Brokers, **tls: Any) -> None:
    """Order TLS, and wait until every broker has begun again with it and is in sync."""
    before = _brokers_of(brokers)
    patch = json.dumps({"spec": {"tls": tls}})
    kube.run("patch", "imc", NAME, "-n", NAMESPACE, "--type=merge", "-p", patch)
    until(
        lambda: not before & _brokers_of(brokers),
        f"every broker has begun again with {tls}",
        seconds_max=ROLLED_SECONDS_MAX,
    )
    brokers.settled()
    until_ready(kube, "imc", NAMESPACE, NAME, seconds_max=60)


def _brokers_of(brokers: Brokers) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in brokers.pods()}


def _authority(kube: Kube) -> str:
    """Return what signs, as the Secret of the first shard says whom to trust."""
    found = kube.get("secret", f"{NAME}-s0-tls", "-n", NAMESPACE)["data"]
    return base64.b64decode(found["ca.crt"]).decode()


def _show_certificates_of(brokers: Brokers, authority: str) -> bool:
    """Whether every broker shows clients a certificate of the authority."""
    hosts = [pod["status"]["podIP"] for pod in brokers.pods()]
    asked = ("python3", "-c", SHOWN, str(CLIENT_PORT), *hosts)
    where = ("exec", "-i", "-n", NAMESPACE, brokers.names()[0], "--")
    told = brokers.kube.run(*where, *asked, text=authority)
    return len(told.splitlines()) == len(hosts)


def test_a_running_cluster_is_encrypted_while_clients_send(
    kube: Kube, plain: Brokers, client_pod: str, topic: str, tmp_path: Path, account: list[str]
) -> None:
    with _sending(plain, client_pod, tmp_path / "plain", f"{topic}-plain", tls=False) as running:
        _order(kube, plain, clients="Permissive", members="Permissive", ca={"overlap": OVERLAP})
        running.go_on(100)
        account.append("without TLS, while it is switched on: " + running.finish())
        running.unharmed()
    with _sending(plain, client_pod, tmp_path / "tls", f"{topic}-tls", tls=True) as running:
        _order(kube, plain, clients="Enforcing", members="Enforcing", ca={"overlap": OVERLAP})
        running.go_on(100)
        assert _show_certificates_of(plain, _authority(kube))
        account.append("with TLS, while it is enforced: " + running.finish())
        running.unharmed()


def test_another_authority_takes_over_while_clients_send(
    kube: Kube, plain: Brokers, client_pod: str, topic: str, tmp_path: Path, account: list[str]
) -> None:
    """No pod restarts for it, and members trust each other all of the time."""
    with _sending(plain, client_pod, tmp_path, f"{topic}-tls", tls=True) as running:
        pods, former = plain.uids(), _authority(kube)
        kube.run("annotate", "imc", NAME, "-n", NAMESPACE, "imago.dev/force-renew=1")

        def replaced() -> bool:
            said = condition(kube, "imc", NAMESPACE, NAME, "CertificatesValid")
            stable = said.get("reason") == "Issued"
            return stable and former not in _authority(kube)

        seconds = until(replaced, "another authority signs", seconds_max=ROTATED_SECONDS_MAX)
        assert plain.in_sync() == 3
        until(
            lambda: _show_certificates_of(plain, _authority(kube)),
            "every broker shows a certificate of it",
            seconds_max=120,
        )
        running.go_on(100)
        account.append(f"another authority after {seconds:.0f} s: " + running.finish())
        running.unharmed()
        assert plain.uids() == pods
