"""Original clients with credentials (`AclClientRPCHook`), against brokers with access control."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.drivers import PARTS, ROCKETMQ4, ROCKETMQ5
from imago_testing.interop.rocketmq import Outgoing, RocketmqClient
from imago_testing.interop.static_topics import wait_for_owners
from imago_testing.interop.targets import imago_up
from imago_testing.java.driver import SMALL, DriverError, JavaDriver, java_command
from imago_testing.processes.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("users", clients=("rocketmq4", "rocketmq5")),
]
PASSWORD = "password-of-ann"
TOOLS = "dev.imago.interop.rocketmq.Tools"
VERSIONS = pytest.mark.parametrize(
    ("version", "name"),
    [pytest.param(4, ROCKETMQ4, marks=pytest.mark.full), (5, ROCKETMQ5)],
    ids=["4.9", "5"],
)
"""The older signs in the same way."""


class Cluster:
    """A running cluster with access control, and its administrator."""

    def __init__(self, ready: Mapping[str, object], data: Path) -> None:
        self.namesrv = str(ready["namesrv"])
        self._admin = str(ready["brokers"][0]["admin"])  # type: ignore[index]
        self._token = (data / "admin-token").read_text().strip()

    def put_user(self, name: str, *rules: tuple[str, str, str], is_super: bool = False) -> None:
        told = [
            {"resource": {"type": kind, "name": of}, "operations": [operation]}
            for kind, of, operation in rules
        ]
        user = {"password": PASSWORD, "rules": told, "super": is_super}
        body = json.dumps(user).encode()
        request = urllib.request.Request(
            f"{self._admin}/admin/v1/users/{name}",
            data=body,
            method="PUT",
            headers={"Authorization": f"Bearer {self._token}"},
        )
        with urllib.request.urlopen(request, timeout=50) as answer:
            assert answer.status == 200

    def has_topic(self, name: str) -> bool:
        return self._asked(f"topics/{name}") == 200

    def has_user(self, name: str) -> bool:
        return self._asked(f"users/{name}") == 200

    def delete_user(self, name: str) -> None:
        assert self._asked(f"users/{name}", "DELETE") in {200, 204}

    def _asked(self, path: str, method: str = "GET") -> int:
        request = urllib.request.Request(
            f"{self._admin}/admin/v1/{path}",
            method=method,
            headers={"Authorization": f"Bearer {self._token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=50) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 404:
                    raise
                return error.code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("up")
    with imago_up(folder, shards=2, options=["--set", "acl.enabled=true"]) as ready:
        yield Cluster(ready, Path(str(ready["data"])))


@contextmanager
def driver(
    name: str,
    home: Path,
    user: str = "",
    password: str | None = None,
    main: str = "",
    more: Sequence[str] = (),
) -> Iterator[JavaDriver]:
    """Run a client, or with its `main` another program, with these credentials."""
    module, usual = PARTS[name]
    flags = [*SMALL, *more]
    if password is not None:  # in a file of options: everybody sees the command line
        home.mkdir(parents=True, exist_ok=True)
        options = home / "options.password"
        options.write_text(f"-Dinterop.user={user}\n-Dinterop.password={password}\n")
        flags.append(f"@{options}")
    command = java_command(module, main or usual, home, flags=flags)
    running = JavaDriver(name, command, home)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def java(name: str, password: str | None, tmp_path: Path) -> Iterator[JavaDriver]:
    with driver(name, tmp_path / "home", "ann", password) as running:
        yield running


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


@pytest.mark.parametrize(("name", "password"), [(ROCKETMQ5, PASSWORD)], ids=["5"])
def test_a_user_with_rights_uses_a_static_topic_that_was_moved(
    java: JavaDriver, cluster: Cluster, tmp_path: Path
) -> None:
    topic, groups = "secured-static", ("static-readers", "static-late-readers")
    cluster.put_user("root", is_super=True)
    rights = [("Topic", topic, "publish"), ("Topic", topic, "subscribe")]
    cluster.put_user("ann", *rights, *(("Group", group, "subscribe") for group in groups))
    client = RocketmqClient(5, java.wait_ready(), cluster.namesrv)

    def sent_to(first: int, last: int) -> set[str]:
        with client.producer() as producer:
            messages = [Outgoing(body=b"%d" % number) for number in range(first, last)]
            return {sent.queue.broker for sent in producer.send(topic, messages)}

    def consumed(group: str, count: int) -> list[int]:
        with client.push(topic, group) as consumer:
            return sorted(int(message.body) for message in consumer.take(count))

    with driver(ROCKETMQ5, tmp_path / "tools", "root", PASSWORD, main=TOOLS) as tools:
        tools.wait_ready()

        def mqadmin(*line: str) -> str:
            printed: str = tools.call("run", namesrv=cluster.namesrv, line=list(line))
            return printed

        made = mqadmin("updateStaticTopic", "-t", topic, "-qn", "4", "-c", "imago")
        assert "Exception" not in made, made
        wait_for_owners({"shard-0", "shard-1"}, lambda: mqadmin("topicRoute", "-t", topic))
        sent_to(0, 20)
        assert consumed(groups[0], 20) == list(range(20))
        client.settle()
        moved = mqadmin("remappingStaticTopic", "-t", topic, "-b", "shard-1")
        assert "Exception" not in moved, moved
        wait_for_owners({"shard-1"}, lambda: mqadmin("topicRoute", "-t", topic))
    assert sent_to(20, 40) == {"shard-1"}
    assert consumed(groups[0], 20) == list(range(20, 40))
    # What shard-0 kept is read through shard-1, which asks for it in the name of the cluster.
    assert consumed(groups[1], 40) == list(range(40))
    client.settle()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with access control that serves RocketMQ's clients and tools over TLS alone."""
    server = authority.issue("server")
    settings = {
        "acl.enabled": "true",
        "tls.certificate_file": server.certificate,
        "tls.key_file": server.key,
        "tls.ca_file": authority.file,
        "tls.mode": "enforcing",
    }
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with imago_up(tmp_path_factory.mktemp("up"), shards=1, options=options) as ready:
        yield Cluster(ready, Path(str(ready["data"])))


ABOUT_USERS = {
    4: ("updateAclConfig", "-c", "imago", "-a", "account", "-s", "secret-of-account"),
    5: ("createUser", "-c", "imago", "-u", "account", "-p", "secret-of-account"),
}


@pytest.mark.full
@VERSIONS
def test_mqadmin_does_over_tls_what_its_user_may(
    version: int, name: str, secured: Cluster, authority: Authority, tmp_path: Path
) -> None:
    topic = f"secured-tools-{version}"
    changes = (
        ("updateTopic", "-c", "imago", "-t", topic, "-r", "1", "-w", "1"),
        ("updateSubGroup", "-c", "imago", "-g", f"{topic}-readers"),
        ABOUT_USERS[version],
    )
    secured.put_user("root", is_super=True)
    secured.put_user("ann", ("Topic", "another", "publish"))
    trusting = (
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={authority.file}",
    )
    with driver(name, tmp_path / "tools", main=TOOLS, more=trusting) as tools:
        tools.wait_ready()

        def done_by(user: str, password: str = PASSWORD, *, tls: bool = True) -> list[str]:
            tools.call("become", user=user, password=password, tls=tls)
            return [
                str(tools.call("run", namesrv=secured.namesrv, line=list(line)))
                for line in changes[: None if tls else 1]  # who is cut off is waited for
            ]

        for refused, words in (
            (done_by("root", tls=False), "remoting.exception.Remoting"),
            (done_by("root", "wrong-password"), "signature"),
            (done_by("ann"), "permission"),
        ):
            assert all(words in printed for printed in refused), refused
        assert not secured.has_topic(topic)
        assert not secured.has_user("account")
        allowed = done_by("root")
        assert not any("Exception" in printed for printed in allowed), allowed
        assert secured.has_topic(topic)
        assert secured.has_user("account")
        secured.delete_user("account")  # the other version makes it, too
