"""Original clients with credentials (`AclClientRPCHook`), against brokers with access control."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.drivers import PARTS, ROCKETMQ4, ROCKETMQ5
from imago_testing.interop.rocketmq import Outgoing, RocketmqClient
from imago_testing.interop.targets import imago_up
from imago_testing.java.driver import SMALL, DriverError, JavaDriver, java_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(300),
    pytest.mark.shows("users", clients=("rocketmq4", "rocketmq5")),
]
PASSWORD = "password-of-ann"
VERSIONS = pytest.mark.parametrize(
    ("version", "name"), [(4, ROCKETMQ4), (5, ROCKETMQ5)], ids=["4.9", "5"]
)


class Cluster:
    """A running cluster with access control, and its administrator."""

    def __init__(self, ready: Mapping[str, object], data: Path) -> None:
        self.namesrv = str(ready["namesrv"])
        self._admin = str(ready["brokers"][0]["admin"])  # type: ignore[index]
        self._token = (data / "admin-token").read_text().strip()

    def put_user(self, name: str, *rules: tuple[str, str, str]) -> None:
        told = [
            {"resource": {"type": kind, "name": of}, "operations": [operation]}
            for kind, of, operation in rules
        ]
        body = json.dumps({"password": PASSWORD, "rules": told}).encode()
        request = urllib.request.Request(
            f"{self._admin}/admin/v1/users/{name}",
            data=body,
            method="PUT",
            headers={"Authorization": f"Bearer {self._token}"},
        )
        with urllib.request.urlopen(request, timeout=50) as answer:
            assert answer.status == 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("up")
    with imago_up(folder, shards=2, options=["--set", "acl.enabled=true"]) as ready:
        yield Cluster(ready, Path(str(ready["data"])))


@pytest.fixture
def java(name: str, password: str | None, tmp_path: Path) -> Iterator[JavaDriver]:
    module, main = PARTS[name]
    flags = [] if password is None else ["-Dinterop.user=ann", f"-Dinterop.password={password}"]
    home = tmp_path / "home"
    driver = JavaDriver(name, java_command(module, main, home, flags=(*SMALL, *flags)), home)
    yield driver
    driver.close()


@pytest.mark.parametrize("password", [PASSWORD])
@VERSIONS
def test_a_user_with_rights_sends_and_consumes(
    version: int, java: JavaDriver, cluster: Cluster
) -> None:
    topic, group = f"secured-{version}", f"secured-readers-{version}"
    rights = [("Topic", topic, "publish"), ("Topic", topic, "subscribe")]
    cluster.put_user("ann", *rights, ("Group", group, "subscribe"))
    client = RocketmqClient(version, java.wait_ready(), cluster.namesrv)
    with client.producer() as producer, client.push(topic, group) as consumer:
        outgoing = [Outgoing(body=f"message {n}".encode()) for n in range(20)]
        sent = producer.send(topic, outgoing)
        assert {each.status for each in sent} == {"SEND_OK"}
        found = consumer.take(len(outgoing))
        assert sorted(each.body for each in found) == sorted(each.body for each in outgoing)
        cluster.put_user("ann", ("Topic", topic, "subscribe"), ("Group", group, "subscribe"))
        with pytest.raises(DriverError, match=r"No default permission|has no permission"):
            producer.send(topic, [Outgoing(body=b"no more")])
    client.settle()


@pytest.mark.parametrize("password", [None, "wrong-password"])
@VERSIONS
def test_a_client_without_credentials_or_with_wrong_ones_sends_nothing(
    version: int, password: str | None, java: JavaDriver, cluster: Cluster
) -> None:
    cluster.put_user("ann", ("Topic", "secured", "publish"))
    client = RocketmqClient(version, java.wait_ready(), cluster.namesrv)
    words = r"No accessKey|username" if password is None else r"[Cc]heck signature failed"
    with client.producer(retries=0) as producer, pytest.raises(DriverError, match=words):
        producer.send("secured", [Outgoing(body=b"never")])
    client.settle()
