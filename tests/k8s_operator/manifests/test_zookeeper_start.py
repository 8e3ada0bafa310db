"""What a pod of ZooKeeper runs, by bash itself: the server's programs and DNS are played."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from imago_operator.manifests import zookeeper_start as pod
from imago_operator.spec.cluster.zookeeper import RegistryTls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOMAIN = "demo-zookeeper-nodes.mq.svc"
NAME = f"demo-zookeeper-1.{DOMAIN}"
MINE, FORMER = "10.0.0.1", "10.0.0.11"
JAVA = """\
public class Asked {
    public static void main(String[] names) {
        for (String name : names) System.out.println(java.security.Security.getProperty(name));
    }
}
"""
"""Says what Java goes by."""
CACHES = ("networkaddress.cache.ttl", "networkaddress.cache.negative.ttl")


@pytest.fixture(name="programs")
def _programs(tmp_path: Path) -> Path:
    """A folder for programs of the pod, and those for its files."""
    for name in ("bin", "tmp", "data", "etc"):
        (tmp_path / name).mkdir()
    lines = "".join(f"server.{n}=zoo-{n}.nodes:2888:3888\n" for n in range(1, 4))
    told = {"zoo.cfg": "dataDir=/data\n", "servers": lines, "members": "3\n", "founders": "3\n"}
    for name, text in told.items():
        (tmp_path / "etc" / name).write_text(text)
    return tmp_path / "bin"


def bash(words: str, programs: Path, **told: str) -> subprocess.CompletedProcess[str]:
    """Run words of a pod whose folders are beside that of its programs."""
    # What goes on beside the server would have this wait for it.
    here = words.replace(f"while sleep {pod.FOLLOWS_S}", "while false")
    here = here.replace("/tmp/", f"{programs.parent}/tmp/")
    here = here.replace("/data/", f"{programs.parent}/data/")
    here = here.replace("/etc/imago-zookeeper/", f"{programs.parent}/etc/")
    return subprocess.run(
        ["bash", "-c", here],
        env={"PATH": f"{programs}:{os.environ['PATH']}", **told},
        capture_output=True,
        text=True,
        check=False,
    )


def program(programs: Path, name: str, words: str) -> None:
    (programs / name).write_text(f"#!/bin/bash\n{words}\n")
    (programs / name).chmod(0o755)


@pytest.mark.zookeeper
def test_java_keeps_no_address_and_takes_flags_of_the_pods_own(programs: Path) -> None:
    source = programs / "Asked.java"
    source.write_text(JAVA)
    program(programs, "zkServer.sh", f"exec java $JVMFLAGS {source} {' '.join(CACHES)}")
    flags = "-Djava.security.egd=file:/dev/./urandom"
    begun = bash(pod.start(RegistryTls.NONE), programs, HOSTNAME="demo-zookeeper-1", JVMFLAGS=flags)
    assert begun.stdout.split()[:2] == ["0", "0"], begun.stderr
    assert (programs.parent / "data" / "myid").read_text() == "2\n"
    program(programs, "zkServer.sh", 'echo "$JVMFLAGS"')
    begun = bash(pod.start(RegistryTls.NONE), programs, HOSTNAME="demo-zookeeper-1", JVMFLAGS=flags)
    *_, superuser, last = begun.stdout.split()
    assert last == flags
    assert re.fullmatch(r"-Dzookeeper\.\w+\.superDigest=super:[A-Za-z0-9+/]{27}=", superuser)


class TestMembers:
    def begun(self, programs: Path, number: int) -> list[str]:
        """Begin a server; return the members that ZooKeeper is told."""
        program(programs, "zkServer.sh", 'sed -n "s/^dynamicConfigFile=//p" "$2" | xargs cat')
        words = pod.start(RegistryTls.NONE)
        done = bash(words, programs, HOSTNAME=f"demo-zookeeper-{number - 1}")
        assert not done.stderr
        return done.stdout.split()

    def test_founders_begin_together(self, programs: Path) -> None:
        every = [f"server.{n}=zoo-{n}.nodes:2888:3888:participant" for n in range(1, 4)]
        assert self.begun(programs, 2) == every

    def test_a_new_one_begins_as_an_observer_of_those_before(self, programs: Path) -> None:
        (programs.parent / "etc" / "founders").write_text("1\n")
        first, new = self.begun(programs, 3)
        assert first == "server.1=zoo-1.nodes:2888:3888:participant"
        assert new == "server.3=zoo-3.nodes:2888:3888:observer"

    def test_one_that_begins_again_goes_by_what_zookeeper_wrote(self, programs: Path) -> None:
        """But for its own port, which its configuration says."""
        data = programs.parent / "data"
        (data / "zoo.cfg").write_text(f"dynamicConfigFile={data}/zoo.cfg.dynamic.2a\n")
        known = [f"server.{n}=zoo-{n}.nodes:2888:3888:participant;0.0.0.0:2181" for n in (1, 2)]
        (data / "zoo.cfg.dynamic.2a").write_text("\n".join(known))
        assert self.begun(programs, 2) == [known[0], known[1].partition(";")[0]]
        assert self.begun(programs, 3)[-1] == "server.3=zoo-3.nodes:2888:3888:observer"


class TestReadiness:
    @pytest.fixture(name="port")
    def _port(self) -> Iterator[int]:
        """A server that follows."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=self.serve, args=(listening,), daemon=True).start()
            yield listening.getsockname()[1]
            listening.shutdown(socket.SHUT_RDWR)

    def serve(self, listening: socket.socket) -> None:
        while True:
            try:
                asking, _ = listening.accept()
            except OSError:
                return
            with asking:
                asking.recv(16)
                asking.sendall(b"Zookeeper version: 3.9\nMode: follower\n")

    @pytest.fixture(autouse=True)
    def _member(self, programs: Path) -> None:
        data = programs.parent / "data"
        (data / "myid").write_text("2\n")
        (data / "zoo.cfg").write_text(f"dynamicConfigFile={data}/members\n")
        (data / "members").write_text("server.2=zoo-2.nodes:2888:3888:participant\n")

    def test_a_server_that_is_no_member_is_not_ready(self, programs: Path, port: int) -> None:
        self.named(programs, MINE)
        assert self.ready(programs, port)
        (programs.parent / "data" / "members").write_text("server.1=a:2888:3888:participant\n")
        assert not self.ready(programs, port)

    def ready(self, programs: Path, port: int) -> bool:
        words = pod.is_ready(DOMAIN).replace("/2181", f"/{port}")
        asked = bash(words, programs, HOSTNAME="demo-zookeeper-1", POD_IP=MINE)
        assert not asked.stderr
        return asked.returncode == 0

    def named(self, programs: Path, *addresses: str) -> None:
        lines = "\\n".join(f"{address}      STREAM {NAME}" for address in addresses)
        program(programs, "getent", f'[ "$*" = "ahosts {NAME}" ] && printf "{lines}\\n"')

    def test_a_server_is_ready_once_its_name_leads_to_it(self, programs: Path, port: int) -> None:
        program(programs, "getent", "exit 2")
        assert not self.ready(programs, port)
        self.named(programs, FORMER)
        assert not self.ready(programs, port)
        self.named(programs, FORMER, MINE)
        assert self.ready(programs, port)

    def test_and_stays_so_without_dns_until_it_has_another_address(
        self, programs: Path, port: int
    ) -> None:
        self.named(programs, MINE)
        assert self.ready(programs, port)
        program(programs, "getent", "exit 2")
        assert self.ready(programs, port)
        (programs.parent / "tmp" / "found").write_text(f"{FORMER}\n")
        assert not self.ready(programs, port)

    def test_an_image_without_a_look_up_is_taken_at_its_word(
        self, programs: Path, port: int
    ) -> None:
        for name in ("bash", "cat", "grep", "sed"):
            (programs / name).symlink_to(f"/bin/{name}")
        words = pod.is_ready(DOMAIN).replace("/2181", f"/{port}").replace("/tmp/", f"{programs}/")
        words = words.replace("/data/", f"{programs.parent}/data/")
        told = {"PATH": str(programs), "POD_IP": MINE}
        assert subprocess.run(["bash", "-c", words], env=told, check=False).returncode == 0
