"""Real servers of ZooKeeper, begun as the operator's pods begin, that become more and fewer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_cli.servers.zookeeper_server import four_letters
from imago_operator.manifests.zookeeper import config_files, zookeeper_template
from imago_operator.manifests.zookeeper_members import FOLDER, ServerNumbers
from imago_operator.manifests.zookeeper_start import CONFIG, FOLLOWS_S, LOOKED_UP, NUMBER, SERVE
from imago_operator.model import names
from imago_testing.operated.resources import wanted
from imago_testing.processes.managed_zookeeper import ManagedZooKeeper
from imago_testing.processes.mounted_secret import MountedSecret
from imago_testing.processes.servers import wait_until
from imago_testing.processes.zookeeper_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.zookeeper]
MOST = 5
TLS = {"authentication": "None", "tls": "None"}
HERE = {
    f"sleep {FOLLOWS_S}": "sleep 1",
    # On one machine each has a port of its own.
    "$plain;$open": "$plain;$(sed -n ${next}p /etc/imago-zookeeper/ports)",
}


class Growing:
    """Servers, of which some run, and the numbers that they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[ManagedZooKeeper] = []
        self.running = 0
        self._numbers = ServerNumbers(1, 1, 1)
        desired = wanted({"spec.zookeeper": {"managed": {"replicas": MOST} | TLS}})
        managed = desired.spec.zookeeper.managed
        assert managed is not None
        self._desired, self._managed = desired, managed
        self.template = template = zookeeper_template(desired, managed)
        for number in range(MOST):
            home = folder / f"server-{number}"
            mounted = MountedSecret(folder / f"{number}-secret")
            files = config_files(desired, managed, self._numbers)
            self.servers.append(ManagedZooKeeper(home, template, files, mounted, number))
            self.servers[-1].made_of(template, HERE)
        domain = f"{names.zookeeper_nodes('demo')}.mq.svc"
        name = names.zookeeper("demo")
        places = {
            f"{name}-{n}.{domain}:2888:3888": f"127.0.0.1:{s.quorum}:{s.election}"
            for n, s in enumerate(self.servers)
        }
        clients = "".join(f"0.0.0.0:{server.plain}\n" for server in self.servers)
        for server in self.servers:
            server.finds(places)
            server.tell({"ports": clients})

    def tell(self, members: int, founders: int) -> None:
        self._numbers = ServerNumbers(members, members, founders)
        for server in self.servers:
            server.tell(config_files(self._desired, self._managed, self._numbers))

    def members(self, server: ManagedZooKeeper) -> set[int]:
        """Return who is a member, as a server's own file says."""
        data = self.folder / f"server-{self.servers.index(server)}" / "data"
        said = (data / "zoo.cfg").read_text().partition("dynamicConfigFile=")[2].split("\n")[0]
        try:
            lines = Path(said).read_text().splitlines()
        except FileNotFoundError:
            return set()  # it has just been replaced
        found = (line for line in lines if ":participant" in line)
        return {int(line.partition("=")[0].removeprefix("server.")) for line in found}

    def one_more(self) -> None:
        """Do what the operator does: a pod, then one member more, then one founder more."""
        self.servers[self.running].start()
        self.running += 1
        if self.running > 1:
            self.tell(self.running, self.running - 1)
        self._settles()
        self.tell(self.running, self.running)

    def one_less(self) -> None:
        self.tell(self.running - 1, self.running - 1)
        gone = self.running
        wait_until(lambda: gone not in self.members(self.servers[0]), what="it is left out")
        self.running -= 1
        self._settles()
        self.servers[self.running].stop()

    def _settles(self) -> None:
        every = set(range(1, self.running + 1))
        for server in self.servers[: self.running]:
            wait_until(lambda s=server: self.members(s) == every, what=f"{every} are members")  # type: ignore[misc]
            wait_until(lambda s=server: mode(s) in ("leader", "follower"), what="it serves")  # type: ignore[misc]


def mode(server: ManagedZooKeeper) -> str:
    told = four_letters("srvr", "127.0.0.1", server.plain)
    return told.partition("Mode: ")[2].partition("\n")[0]


@pytest.fixture(name="growing")
def _growing(tmp_path: Path) -> Iterator[Growing]:
    made = Growing(tmp_path)
    try:
        yield made
    finally:
        for server in made.servers:
            server.stop()


def test_one_becomes_three_and_five_and_three_while_a_client_writes(growing: Growing) -> None:
    growing.one_more()
    writer = Writer([server.plain for server in growing.servers], session_s=20)
    try:
        for many in (3, 5):
            while growing.running < many:
                growing.one_more()
                writer.goes_on()
        # One that begins again keeps what it knew of the others.
        growing.servers[0].stop()
        writer.goes_on()
        growing.servers[0].start()
        growing._settles()
        while growing.running > 3:
            growing.one_less()
            writer.goes_on()
    finally:
        found = writer.stop()
    assert writer.lost == 0, "no session ended"
    assert len(found) == writer.written


def test_pods_of_the_former_script_are_replaced_while_a_client_writes(growing: Growing) -> None:
    """Before decision 64 a server read who the others are in the file that all share.

    One that begins again before its restart is approved still does, when today's file is there.
    """
    words = f"{NUMBER} && {LOOKED_UP} && {SERVE} {FOLDER}/{CONFIG}"
    former = {"spec": {"containers": [{"command": ["bash", "-c", words]}]}}
    growing.tell(3, 3)
    three = growing.servers[:3]
    for server in three:
        server.made_of(former)
        server.start()
    writer = Writer([server.plain for server in three], session_s=20)
    try:
        writer.goes_on()
        three[0].stop()
        three[0].start()
        wait_until(lambda: mode(three[0]) in ("leader", "follower"), what="it serves again")
        for server in three:
            server.stop()
            writer.goes_on()
            server.made_of(growing.template, HERE)
            server.start()
            wait_until(lambda s=server: mode(s) in ("leader", "follower"), what="it serves")  # type: ignore[misc]
            writer.goes_on()
        growing.running = 3
        growing.one_more()
        writer.goes_on()
    finally:
        found = writer.stop()
    assert writer.lost == 0, "no session ended"
    assert len(found) == writer.written
