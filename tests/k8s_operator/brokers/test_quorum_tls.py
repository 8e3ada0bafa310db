"""Three real servers of ZooKeeper, begun as the operator's pods begin, that move to TLS and back.

Between each two of them is a tap, and at the first a client that never stops writing.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from imago_cli.servers.zookeeper_server import four_letters
from imago_operator.certificates.state import ZOOKEEPER
from imago_operator.manifests.zookeeper import config_files, zookeeper_template
from imago_operator.manifests.zookeeper_start import KNOWN_S
from imago_operator.model import names
from imago_operator.model.actions import CertificateWork, Certify
from imago_operator.spec.cluster.zookeeper import QuorumTls
from imago_testing.operated.resources import wanted
from imago_testing.processes.certificates import Authority, Pair
from imago_testing.processes.managed_zookeeper import ManagedZooKeeper
from imago_testing.processes.mounted_secret import MountedSecret
from imago_testing.processes.operated_secrets import Secrets
from imago_testing.processes.servers import wait_until
from imago_testing.processes.tap import Tap
from imago_testing.processes.zookeeper_writer import MARK, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_operator.model.desired import Desired

pytestmark = [pytest.mark.zookeeper]
PLAIN, ACCEPTING, SENDING, ALONE = QuorumTls
SERVERS = 3
SESSION_S = 60
"""Servers that cannot meet are without a quorum for ever; an election on a busy machine may take a
while."""
SOON_S = 5
FASTER = {str(KNOWN_S): str(SOON_S)}
"""How long a test has a certificate be known before it is shown."""
MEETS = Certify(CertificateWork.ISSUE, ZOOKEEPER)
ANOTHER = (
    Certify(CertificateWork.NEXT_AUTHORITY),
    Certify(CertificateWork.TRUST, ZOOKEEPER),
    Certify(CertificateWork.SWITCH_AUTHORITY),
    MEETS,
)


@dataclass
class Ensemble:
    """Three servers, and what is said between them."""

    desired: Desired
    folder: Path
    secrets: Secrets
    servers: list[ManagedZooKeeper] = field(default_factory=list)
    taps: list[Tap] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(SERVERS):
            self.servers.append(self.server(number, f"server-{number}", self.secrets.servers))
        for server in self.servers:
            self.taps += [Tap(server.quorum), Tap(server.election)]
        for number, server in enumerate(self.servers):
            server.finds(self.places(number, server))

    def server(self, number: int, name: str, files: dict[str, str]) -> ManagedZooKeeper:
        managed = self.desired.spec.zookeeper.managed
        assert managed is not None
        mounted = MountedSecret(self.folder / f"{name}-secret")
        mounted.write(files)
        files = config_files(self.desired, managed)
        files["zoo.cfg"] += f"maxSessionTimeout={1000 * SESSION_S}\n"
        # Whom it may reconfigure tells all where it finds the others itself; here that is a tap.
        # So written, the pods' script does not find what it switches on.
        files["zoo.cfg"] = files["zoo.cfg"].replace("reconfigEnabled=", "reconfigEnabled =")
        template = zookeeper_template(self.desired, managed)
        return ManagedZooKeeper(self.folder / name, template, files, mounted, number)

    def places(self, number: int, server: ManagedZooKeeper) -> dict[str, str]:
        """Return where a server finds itself, and others through their taps."""
        ports = [(self.taps[2 * n].port, self.taps[2 * n + 1].port) for n in range(SERVERS)]
        ports[number] = server.quorum, server.election
        domain = f"{names.zookeeper_nodes('demo')}.mq.svc"
        return {
            f"{names.zookeeper('demo')}-{n}.{domain}:2888:3888": f"127.0.0.1:{one}:{other}"
            for n, (one, other) in enumerate(ports)
        }

    def make(self, server: ManagedZooKeeper, way: QuorumTls) -> None:
        managed = self.desired.spec.zookeeper.managed
        assert managed is not None
        made = zookeeper_template(replace(self.desired, quorum_tls=way), managed)
        server.made_of(made, FASTER)

    def round(self, way: QuorumTls) -> None:
        """Restart one server after the other, each when the one before it serves."""
        for server in reversed(self.servers):
            server.stop()
            self.make(server, way)
            server.start()
            self.serves(server)

    def start(self, way: QuorumTls) -> None:
        for server in self.servers:
            self.make(server, way)
            server.start()
        for server in self.servers:
            self.serves(server)

    def serves(self, server: ManagedZooKeeper) -> None:
        wait_until(lambda: mode(server) != "", what="the server follows or leads")

    def heard(self) -> bytes:
        return b"".join(tap.heard() for tap in self.taps)

    def leader(self) -> ManagedZooKeeper:
        return next(server for server in self.servers if mode(server) == "leader")

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
        for tap in self.taps:
            tap.close()


def mode(server: ManagedZooKeeper) -> str:
    """Return how the server takes part; empty: it does not."""
    told = four_letters("srvr", "127.0.0.1", server.plain)
    return told.partition("Mode: ")[2].partition("\n")[0]


@contextmanager
def ensemble(folder: Path) -> Iterator[Ensemble]:
    desired = wanted({"spec.zookeeper": {"managed": {"replicas": SERVERS}}})
    made = Ensemble(desired, folder, Secrets(desired))
    try:
        yield made
    finally:
        made.stop()


def pair(folder: Path, files: dict[str, str], name: str = "pair") -> Pair:
    found = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    found.certificate.write_text(files.get("quorum.crt", files["tls.crt"]))
    found.key.write_text(files["tls.key"])
    return found


def shown(port: int, who: Pair) -> str | None:
    """Return the certificate shown to one with this one; None: he is not let in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # What servers speak; with 1.3 one hears of a refusal only later.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(who.certificate, who.key)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            context.wrap_socket(plain) as secure,
        ):
            found = secure.getpeercert(True)
            return ssl.DER_cert_to_PEM_cert(found) if found else None
    except (ssl.SSLError, ConnectionError):
        return None


def shows(port: int, who: Pair) -> bool:
    """Whether one with this certificate is shown the same."""
    return (shown(port, who) or "-") in who.certificate.read_text()


def turns_away(port: int, who: Pair) -> bool:
    return shown(port, who) is None


def ends_plain(port: int) -> bool:
    """Whether one who speaks without TLS gets nothing but an end."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        plain.sendall(bytes(64))
        try:
            return plain.recv(1) == b""
        except ConnectionError:
            return True


def ports(of: Ensemble) -> list[int]:
    """Return the ports where servers meet that are open: the leader's, and those of elections."""
    return [of.leader().quorum, *(server.election for server in of.servers)]


@pytest.mark.full
def test_three_rounds_lead_a_running_ensemble_to_tls_and_back(tmp_path: Path) -> None:
    with ensemble(tmp_path) as running:
        running.start(PLAIN)
        writer = Writer([server.plain for server in running.servers])
        try:
            writer.goes_on()
            assert MARK in running.heard()
            for way in (ACCEPTING, SENDING, ALONE):
                running.round(way)
                writer.goes_on()
            running.heard()
            writer.goes_on()
            alone = running.heard()
            assert len(alone) > 20 * len(MARK), "they do talk"
            assert MARK not in alone
            for way in (SENDING, ACCEPTING, PLAIN):
                running.round(way)
                writer.goes_on()
            assert MARK in running.heard()
        finally:
            found = writer.stop()
        assert writer.lost == 0, "the session was lost: no quorum for longer than an election"
        assert {str(n) for n in range(writer.written)} <= set(found)


def test_nobody_but_servers_is_let_in_where_they_meet(tmp_path: Path) -> None:
    """Neither without TLS, nor with a broker's certificate of the same authority, nor another's."""
    with ensemble(tmp_path) as running:
        running.start(ALONE)
        own = pair(tmp_path, running.secrets.servers)
        of_broker = pair(tmp_path, running.secrets.member(0), "broker")
        of_clients = Pair(tmp_path / "clients.crt", own.key)
        of_clients.certificate.write_text(running.secrets.servers["tls.crt"])
        strange = Authority(tmp_path / "strange").issue("strange")
        for port in ports(running):
            assert shown(port, own) is not None
            assert shown(port, of_broker) is None
            assert shown(port, of_clients) is None, "what is shown to clients is not it"
            assert shown(port, strange) is None
            assert ends_plain(port)
        # And as a server: in the place of one that is away, with all of the others' words.
        running.servers[2].stop()
        intruder = running.server(2, "intruder", running.secrets.member(0))
        running.make(intruder, ALONE)
        intruder.finds(running.places(2, intruder))
        try:
            intruder.start()
            log = tmp_path / "intruder" / "zookeeper.log"
            wait_until(
                lambda: (
                    "SSLHandshakeException" in log.read_text() or "SSLException" in log.read_text()
                ),
                what="the intruder is turned away",
            )
            assert mode(intruder) == ""
        finally:
            intruder.stop()
        running.servers[2].start()
        running.serves(running.servers[2])


def test_servers_meet_with_another_certificate_without_a_restart(tmp_path: Path) -> None:
    """Of another authority, that each gets at another time; what it replaces goes in the end."""
    with ensemble(tmp_path) as running:
        running.start(ALONE)
        writer = Writer([server.plain for server in running.servers])
        try:
            former = pair(tmp_path, running.secrets.servers, "former")
            pids = [server.pid for server in running.servers]
            running.secrets.do(*ANOTHER)
            latest = pair(tmp_path, running.secrets.servers, "latest")
            first, *others = running.servers
            first.mounted.write(running.secrets.servers)
            wait_until(lambda: shown(first.election, latest) is not None, what="it is trusted")
            for server in others:
                server.mounted.write(running.secrets.servers)
            for server in running.servers:
                port = server.election
                wait_until(partial(shows, port, latest), what="the other certificate is shown")
            writer.goes_on()
            assert [server.pid for server in running.servers] == pids
            for server in running.servers:
                port = server.election
                wait_until(partial(turns_away, port, former), what="the former is not trusted")
            # A container that begins again, and another leader: all meet anew.
            leader = running.leader()
            leader.stop()
            leader.start()
            running.serves(leader)
            writer.goes_on()
        finally:
            writer.stop()
        assert writer.lost == 0
