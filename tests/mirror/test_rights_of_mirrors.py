"""The rights that docs/mirror.md lists are enough for a mirror, there and back, over TLS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_client import ClientConfig, Message
from imago_client.blocking import Client
from imago_testing.clusters.mirrors import MirrorProcess, started, write_config
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_testing.processes.up import Up

pytestmark = pytest.mark.processes
PAGE = Path(__file__).parents[2] / "docs" / "mirror.md"
GRANT = re.compile(r"(?:topic|group):\S+ [\w,]+|cluster \w+")


def rights(side: str, name: str) -> list[list[str]]:
    """Return the words of `imago user allow` that the page's table has for one side of a mirror."""
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {side} |"))
    row = row.replace("the same of `topic:imago-mirror-NAME`", "")
    found = []
    for grant in GRANT.findall(
        row.replace("`group:NAME` of each translated group `", "`group:NAME ")
    ):
        resource, operations = grant.split()
        resource = resource.replace("imago-mirror-NAME", f"imago-mirror-{name}")
        resource = resource.replace("topic:NAME", "topic:orders").replace("group:NAME", "group:pay")
        found.append([resource, *operations.split(",")])
        if side == "target" and resource == "topic:orders":
            found.append([f"topic:imago-mirror-{name}", *operations.split(",")])
    return found


class Secured:
    """A cluster with TLS and access control, its users' passwords in files."""

    def __init__(self, folder: Path, running: Up) -> None:
        self.folder, self.running = folder, running
        self.names = running.ready["namesrv"]
        for user in ("app", "mirror"):
            self.imago("user", "create", user)
        self.imago("user", "allow", "app", "any:*", "all")

    def imago(self, *words: str) -> None:
        admin = self.running.ready["brokers"][0]["admin"].replace("http://", "https://")
        env = {
            "IMAGO_ADMIN": admin,
            "IMAGO_ADMIN_TOKEN_FILE": str(self.folder / "admin-token"),
            "IMAGO_TLS_CA": str(self.folder / "ca.pem"),
        }
        subprocess.run(
            [sys.executable, "-m", "imago_cli", *words],
            env=os.environ | env, cwd=self.folder, check=True, timeout=60,
        )  # fmt: skip

    def password(self, user: str) -> Path:
        return self.folder / f"{user}.password"

    def client(self) -> Client:
        return Client(
            ClientConfig(
                bootstrap=(self.names,),
                user="app",
                password_file=str(self.password("app")),
                tls_ca_file=str(self.folder / "ca.pem"),
            )
        )

    def place(self) -> str:
        return (
            f'user = "mirror"\npassword_file = "{self.password("mirror")}"\n'
            f'tls_ca_file = "{self.folder / "ca.pem"}"\n'
        )


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Secured, Secured]]:
    for name in ("a", "b"):
        subprocess.run(
            [sys.executable, "-m", "imago_cli", "security", "init", f"sec-{name}",
             "--host", "127.0.0.1"],
            cwd=tmp_path, check=True, capture_output=True, timeout=60,
        )  # fmt: skip
    none = ("--zookeeper", "none", "--config")
    with (
        started(tmp_path, "a", *none, str(tmp_path / "sec-a" / "security.toml")) as a,
        started(tmp_path, "b", *none, str(tmp_path / "sec-b" / "security.toml")) as b,
    ):
        yield Secured(tmp_path / "sec-a", a), Secured(tmp_path / "sec-b", b)


def mirror(folder: Path, name: str, source: Secured, target: Secured) -> MirrorProcess:
    """Run a mirror whose user has the page's rights at both sides, and no more."""
    for side, secured in (("source", source), ("target", target)):
        for words in rights(side, name):
            secured.imago("user", "allow", "mirror", *words)
    names = source.names, target.names
    config, port = write_config(folder, names, name, topics='["orders"]', groups='["pay"]')
    text = config.read_text().replace("[target]", source.place() + "[target]")
    config.write_text(text + target.place())
    return MirrorProcess(config, port)


def send(client: Client, *texts: str) -> None:
    producer = client.producer()
    for text in texts:
        producer.send(Message("orders", text.encode()))


def there(client: Client) -> list[str]:
    found = client.pull_consumer("checker")
    return sorted(
        message.body.decode()
        for queue in found.queues("orders")
        for message in found.pull(queue, 0).messages()
    )


def test_they_are_enough_there_and_back_and_for_a_mirror_that_begins_again(
    sides: tuple[Secured, Secured], tmp_path: Path
) -> None:
    a, b = sides
    with a.client() as at_a, b.client() as at_b:
        at_a.admin.create_topic("orders", queues=2)
        send(at_a, "one", "two")
        forth = mirror(tmp_path, "forth", a, b)
        try:
            forth.wait_copied("orders")
            forth.kill()
            send(at_a, "three")
            forth.start()  # it looks for its last copies at the target
            wait_until(lambda: len(there(at_b)) == 3, what="all copied", seconds_max=60)
            forth.wait_copied("orders")
            assert forth.status()["troubles"] == []
        finally:
            forth.stop()
        send(at_b, "four")
        back = mirror(tmp_path, "back", b, a)
        try:
            wait_until(lambda: len(there(at_a)) == 4, what="all came back", seconds_max=60)
            back.wait_copied("orders")
            assert back.status()["troubles"] == []
        finally:
            back.stop()
        assert there(at_a) == there(at_b) == ["four", "one", "three", "two"]
