"""Brokers of a running cluster reach ZooKeeper over TLS while clients work; its plain port goes.

So do its servers each other, in three rounds more.

ZooKeeper's servers restart one by one for it, and each time that one leads another is elected
before a master's lease ends: clients see nothing of it.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import until_ready
from imago_testing.interop.drivers import ROCKETMQ4, ROCKETMQ5

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

NAMESPACE, NAME = "e2e-registry", "plain"
MOVED_SECONDS_MAX: Final = 1500
PLAIN, SECURE = 2181, 2281
SHOWN: Final = """\
import socket, ssl, sys
context = ssl.create_default_context(cadata=sys.stdin.read())
for host in sys.argv[2:]:
    with socket.create_connection((host, 2281), timeout=5) as plain:
        with context.wrap_socket(plain, server_hostname=sys.argv[1]) as served:
            print(ssl.DER_cert_to_PEM_cert(served.getpeercert(True)))
"""
"""Says the certificates of servers that the authorities have signed, by the name for brokers."""
CONNECTED: Final = """\
import sys
rows = [line.split() for name in ("tcp", "tcp6") for line in list(open("/proc/net/" + name))[1:]]
print(*sorted({int(row[2].rpartition(":")[2], 16) for row in rows if row[3] == "01"}))
"""
"""Says to which ports a pod has connections."""
ANSWERED: Final = """\
import socket, sys
for host in sys.argv[1:]:
    with socket.create_connection((host, 3888), timeout=5) as plain:
        plain.settimeout(20)
        plain.sendall(bytes(64))
        try:
            print("served" if plain.recv(1) else "ended")
        except ConnectionError:
            print("ended")
"""
"""Speaks without TLS to servers where they elect their leader."""
TRIED: Final = """\
import socket, sys
for host in sys.argv[1:]:
    try:
        socket.create_connection((host, 2181), timeout=5).close()
        print("open")
    except ConnectionRefusedError:
        print("refused")
"""


@pytest.fixture(name="plain", scope="module")
def _plain(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster of three members, and three servers of ZooKeeper without TLS."""
    assert operator.installed()
    managed = {"replicas": 3, "storage": {"size": "1Gi"}, "tls": "None"}
    given = clusters.manifest(kube.namespace(NAMESPACE), NAME, zookeeper={"managed": managed})
    yield clusters.make(kube, given)
    kube.delete_namespace(NAMESPACE)


@pytest.mark.timeout(1800)
def test_a_running_cluster_moves_while_clients_of_both_protocols_work(
    kube: Kube, plain: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    """No word of it in the spec: brokers have TLS, and MetaQ's clients their port."""
    assert _ports(plain) == {PLAIN}
    with load(plain, drivers, topic) as running:
        seconds = _order(kube, plain, None)
        until(
            lambda: _ports(plain) == {SECURE},
            "all brokers use the other port",
            seconds_max=MOVED_SECONDS_MAX,
        )
        assert _shown(plain) == [_certificate(kube)] * 3
        assert set(_tried(plain)) == {"open"}
        assert _told(plain.servers(), "ZOO_QUORUM_TLS") == {"Enforcing"}
        assert _asked(plain, ANSWERED) == ["ended"] * 3
        running.go_on(100)
        assert set(plain.leases_lost().values()) == {0}
        account.append(f"moved in {seconds:.0f} s: " + running.finish())
        running.unharmed()


def test_the_plain_port_goes_while_clients_work(
    kube: Kube, plain: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    """Those of MetaQ have no way to find brokers then; brokers are not restarted for it."""
    brokers = {pod["metadata"]["uid"] for pod in plain.pods()}
    of_rocketmq = {name: drivers[name] for name in (ROCKETMQ4, ROCKETMQ5)}
    with load(plain, of_rocketmq, topic) as running:
        seconds = _order(kube, plain, "Enforcing")
        until(lambda: _tried(plain) == ["refused"] * 3, "the plain port is gone", seconds_max=60)
        running.go_on(100)
        assert {pod["metadata"]["uid"] for pod in plain.pods()} == brokers
        assert _ports(plain) == {SECURE}
        assert set(plain.leases_lost().values()) == {0}
        account.append(f"closed in {seconds:.0f} s: " + running.finish())
        running.unharmed()


def test_servers_get_other_certificates_while_clients_work(
    kube: Kube, plain: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    """No pod restarts for it."""
    pods, former = plain.uids(), _certificate(kube)
    of_rocketmq = {name: drivers[name] for name in (ROCKETMQ4, ROCKETMQ5)}
    with load(plain, of_rocketmq, topic) as running:
        kube.run("delete", "secret", f"{NAME}-zookeeper-tls", "-n", NAMESPACE)
        until(lambda: _certificate(kube) not in ("", former), "there is another", seconds_max=120)
        seconds = until(
            lambda: _shown(plain) == [_certificate(kube)] * 3,
            "all servers show the other certificate",
            seconds_max=180,
        )
        running.go_on(100)
        assert plain.in_sync() == 3
        account.append(f"another certificate after {seconds:.0f} s: " + running.finish())
        running.unharmed()
        assert plain.uids() == pods


def _order(kube: Kube, brokers: Brokers, tls: str | None) -> float:
    """Order TLS to ZooKeeper, and wait until the cluster is so; return the seconds."""
    patch = json.dumps({"spec": {"zookeeper": {"managed": {"tls": tls}}}})
    kube.run("patch", "imc", NAME, "-n", NAMESPACE, "--type=merge", "-p", patch)
    seconds = until(
        lambda: (
            _told(brokers.servers()) == {tls or "Permissive"}
            and _told(brokers.servers(), "ZOO_QUORUM_TLS") == {"Enforcing"}
        ),
        f"all servers are told of TLS: {tls}, and Enforcing among themselves",
        seconds_max=MOVED_SECONDS_MAX,
    )
    brokers.settled(seconds_max=MOVED_SECONDS_MAX)
    until_ready(kube, "imc", NAMESPACE, NAME, seconds_max=120)
    return seconds


def _told(pods: list[dict[str, Any]], name: str = "ZOO_TLS") -> set[str]:
    told = [
        {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}
        for pod in pods
    ]
    return {each.get(name, "") for each in told}


def _ports(brokers: Brokers) -> set[int]:
    """Return the ports of ZooKeeper that brokers have connections to."""
    asked = ("python3", "-c", CONNECTED)
    told = [brokers.kube.execute(NAMESPACE, name, *asked) for name in brokers.names()]
    return {int(port) for line in told for port in line.split()} & {PLAIN, SECURE}


def _certificate(kube: Kube) -> str:
    """Return the certificate that servers are to show; empty: there is none."""
    found = kube.find("secret", f"{NAME}-zookeeper-tls", "-n", NAMESPACE)
    text = base64.b64decode(found["data"]["tls.crt"]).decode() if found else ""
    return text.partition("-----END")[0].strip()


def _shown(brokers: Brokers) -> list[str]:
    """Return the certificates that servers show, of the cluster's authority."""
    found = brokers.kube.get("secret", f"{NAME}-zookeeper-tls", "-n", NAMESPACE)["data"]
    trusted = base64.b64decode(found["ca.crt"]).decode()
    hosts = [pod["status"]["podIP"] for pod in brokers.servers()]
    asked = ("python3", "-c", SHOWN, f"{NAME}-zookeeper.{NAMESPACE}.svc", *hosts)
    where = ("exec", "-i", "-n", NAMESPACE, brokers.names()[0], "--")
    told = brokers.kube.run(*where, *asked, text=trusted)
    return [part.strip() for part in told.split("-----END CERTIFICATE-----")[:-1]]


def _tried(brokers: Brokers) -> list[str]:
    """Return how each server's plain port answers a broker."""
    return _asked(brokers, TRIED)


def _asked(brokers: Brokers, words: str) -> list[str]:
    """Return what a program in a broker's pod says of each server."""
    hosts = [str(pod["status"].get("podIP", "")) for pod in brokers.servers()]
    asked = ("python3", "-c", words, *hosts)
    return brokers.kube.execute(NAMESPACE, brokers.names()[0], *asked).split()
