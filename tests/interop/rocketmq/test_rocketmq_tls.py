"""Original clients over TLS that check certificates, and a broker that serves nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.drivers import PARTS, ROCKETMQ4, ROCKETMQ5
from imago_testing.interop.rocketmq import Outgoing, RocketmqClient
from imago_testing.interop.targets import imago_up
from imago_testing.java.driver import DriverError, JavaDriver, java_command
from imago_testing.processes.certificates import Authority
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("tls", clients=("rocketmq4", "rocketmq5")),
]
SMALL = ("-Xss512k", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def namesrv(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = authority.issue("server")
    settings = {
        "tls.certificate_file": server.certificate,
        "tls.key_file": server.key,
        "tls.mode": "enforcing",
    }
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with imago_up(tmp_path_factory.mktemp("up"), shards=1, options=options) as ready:
        yield str(ready["namesrv"])


def driver(name: str, home: Path, *flags: str) -> JavaDriver:
    module, main = PARTS[name]
    return JavaDriver(name, java_command(module, main, home, flags=(*SMALL, *flags)), home)


def trusting(authority: Authority) -> list[str]:
    return [
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={authority.file}",
    ]


@pytest.mark.parametrize(
    ("version", "name"),
    [pytest.param(4, ROCKETMQ4, marks=pytest.mark.full), (5, ROCKETMQ5)],
    ids=["4.9", "5"],
)
def test_messages_go_and_come_over_tls(
    version: int, name: str, namesrv: str, authority: Authority, tmp_path: Path
) -> None:
    java = driver(name, tmp_path / "home", *trusting(authority))
    try:
        client = RocketmqClient(version, java.wait_ready(), namesrv)
        with client.producer() as producer, client.pull() as puller:
            outgoing = [Outgoing(body=f"message {n}".encode() * 500) for n in range(20)]
            sent = producer.send("over-tls-" + str(version), outgoing)
            assert {each.status for each in sent} == {"SEND_OK"}
            found = puller.drain("over-tls-" + str(version), len(outgoing))
        assert sorted(each.body for each in found) == sorted(each.body for each in outgoing)
        client.settle()
    finally:
        java.close()


@pytest.mark.parametrize("fault", seldom(["other authority", "no tls"]))
def test_a_client_that_cannot_trust_or_does_not_ask_sends_nothing(
    fault: str, namesrv: str, tmp_path: Path
) -> None:
    flags = [] if fault == "no tls" else trusting(Authority(tmp_path / "other"))
    java = driver(ROCKETMQ5, tmp_path / "home", *flags)
    try:
        client = RocketmqClient(5, java.wait_ready(), namesrv)
        with client.producer(retries=0) as producer, pytest.raises(DriverError):
            producer.send("T", [Outgoing(body=b"never")])
        client.settle()
    finally:
        java.close()
