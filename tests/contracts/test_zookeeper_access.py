"""A real ZooKeeper with TLS, a user and rights: who reaches its port has no part in the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from imago_broker.cluster import edits
from imago_broker.cluster.tree import NodeError, TreeConfigurationError, TreeUnavailableError
from imago_broker.cluster.tree_access import TreeAccess
from imago_broker.cluster.zookeeper import ZooKeeperTree
from imago_broker.model.cluster import RegistryConnection
from imago_broker.model.topics import TopicConfig
from imago_cli.doctor import checks
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.processes.certificates import Authority, Pair
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_testing.processes.zookeeper import RunningZooKeeper

pytestmark = [pytest.mark.zookeeper, pytest.mark.timeout(300)]


class Guarded:
    """A server with a plain port and one with mutual TLS, and what its clients need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        server = self.authority.issue("zookeeper")
        both = folder / "zookeeper-store.pem"
        both.write_bytes(server.key.read_bytes() + server.certificate.read_bytes())
        self.client = self.authority.issue("broker")
        self.password = folder / "password"
        self.password.write_text("secret\n")
        self.port = free_port_block(1)
        self.more = {
            "secureClientPort": self.port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": both,
            "ssl.trustStore.location": self.authority.file,
            "ssl.clientAuth": "need",
        }
        self.server: RunningZooKeeper

    def access(self, **changes: Any) -> TreeAccess:
        return TreeAccess(
            **{
                "ca_file": str(self.authority.file),
                "certificate_file": str(self.client.certificate),
                "key_file": str(self.client.key),
                "user": "brokers",
                "password_file": str(self.password),
                **changes,
            }
        )

    def tree(self, chroot: str = "", **changes: Any) -> ZooKeeperTree:
        return ZooKeeperTree(
            f"localhost:{self.port}{chroot}",
            session_timeout_ms=6000,
            connect_timeout_ms=8000,
            access=self.access(**changes),
            owned=("/imago/c", "/meta/brokers"),
        )

    def settings(self) -> list[str]:
        access = self.access()
        return [
            f"zookeeper.connect=localhost:{self.port}/guarded",
            f"zookeeper.tls_ca_file={access.ca_file}",
            f"zookeeper.tls_certificate_file={access.certificate_file}",
            f"zookeeper.tls_key_file={access.key_file}",
            "zookeeper.user=brokers",
            f"zookeeper.password_file={self.password}",
        ]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with running_zookeeper(made.folder / "server", more=made.more) as made.server:
        yield made


@pytest.fixture
def stranger(guarded: Guarded) -> Iterator[Any]:
    """Somebody who reaches the port without TLS, and is nobody."""
    client = KazooClient(hosts=guarded.server.address)
    client.start(timeout=50)
    yield client
    client.stop()
    client.close()


def walk(client: Any, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from walk(client, f"{path}/{name}")


async def test_strangers_read_what_metaqs_clients_need_and_write_their_groups_only(
    guarded: Guarded, stranger: Any, tmp_path: Path
) -> None:
    async with running_broker(tmp_path / "data", *guarded.settings()) as broker:
        broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))
        await asyncio.to_thread(
            wait_until,
            lambda: stranger.exists("/guarded/meta/brokers/topics-pub/orders/0-m"),
            seconds_max=50,
            what="the topic is shown",
        )
        master = stranger.get("/guarded/meta/brokers/ids/0/master")[0]
        assert master.startswith(b"meta://")
        for path in walk(stranger, "/guarded/meta/brokers"):
            with pytest.raises(NoAuthError):
                stranger.set(path, b"mine")
            with pytest.raises(NoAuthError):
                stranger.create(f"{path}/mine", b"")
        with pytest.raises(NoAuthError):
            stranger.delete("/guarded/meta/brokers/topics-pub/orders/0-m")
        group = "/guarded/meta/consumers/readers/ids/one"
        stranger.create(group, b"", makepath=True, ephemeral=True)
        offsets = stranger.create("/guarded/meta/consumers/readers/offsets/o", b"", makepath=True)
        stranger.set(offsets, b"7")
        for path in ("/guarded/imago/imago", "/guarded/imago/imago/brokers"):
            with pytest.raises(NoAuthError):
                stranger.get_children(path)
        with pytest.raises(NoAuthError):
            stranger.get("/guarded/imago/imago/id")
        with pytest.raises(NoAuthError):
            stranger.create("/guarded/imago/imago/brokers/0-7", b"{}")


async def test_another_user_is_told_what_is_missing(guarded: Guarded, tmp_path: Path) -> None:
    ours = guarded.tree("/told")
    await ours.start()
    await edits.ensure(ours, [("/imago", b""), ("/imago/c", b"ours")])
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    other = guarded.tree("/told", password_file=str(wrong))
    await other.start()
    try:
        with pytest.raises(NodeError, match=r"zookeeper\.user and zookeeper\.password_file"):
            await other.get("/imago/c")
    finally:
        await other.stop()
        await ours.stop()


async def test_nodes_made_before_are_protected_once_they_are_to_be(
    guarded: Guarded, stranger: Any
) -> None:
    before = guarded.tree("/open", protect=False)
    await before.start()
    paths = ["/imago", "/imago/c", "/imago/c/shards", "/meta", "/meta/brokers", "/meta/brokers/ids"]
    nodes = [(path, b"x") for path in [*paths, *(f"/imago/c/shards/{n}" for n in range(150))]]
    await edits.ensure(before, nodes)
    stranger.set("/open/imago/c/shards/7", b"anybody's")
    after = guarded.tree("/open")
    await after.start()
    assert after._protecting is not None
    await asyncio.wait_for(after._protecting, 50)
    for path in ("/imago/c", "/imago/c/shards", "/imago/c/shards/149"):
        with pytest.raises(NoAuthError):
            stranger.get(f"/open{path}")
    assert stranger.get("/open/meta/brokers/ids")[0] == b"x"
    with pytest.raises(NoAuthError):
        stranger.set("/open/meta/brokers/ids", b"y")
    assert (await before.get("/imago/c/shards/7")) is not None, "one that has the user goes on"
    assert not await after._give_rights("/imago/c"), "nothing is given twice"
    await after.stop()
    await before.stop()


@pytest.mark.parametrize("who", ["nobody", "another authority", "expired", "trusts another"])
async def test_whoever_has_no_certificate_is_not_served(
    guarded: Guarded, tmp_path: Path, who: str
) -> None:
    other = Authority(tmp_path / "other")
    shown: dict[str, Pair | None] = {
        "nobody": None,
        "another authority": other.issue("broker"),
        "expired": guarded.authority.issue("expired", days=-1),
        "trusts another": guarded.client,
    }
    pair = shown[who]
    changes: dict[str, Any] = {
        "certificate_file": str(pair.certificate) if pair else "",
        "key_file": str(pair.key) if pair else "",
    }
    if who == "trusts another":
        changes["ca_file"] = str(other.file)
    tree = guarded.tree(**changes)
    with pytest.raises(TreeUnavailableError, match="no ZooKeeper answers"):
        await tree.start()
    await tree.stop()


async def test_the_servers_name_has_to_be_the_one_that_is_asked_for(guarded: Guarded) -> None:
    tree = ZooKeeperTree(
        f"127.0.0.2:{guarded.port}",
        session_timeout_ms=6000,
        connect_timeout_ms=3000,
        access=guarded.access(),
    )
    with pytest.raises(TreeUnavailableError, match="no ZooKeeper answers"):
        await tree.start()
    await tree.stop()


async def test_files_that_cannot_be_used_are_named(guarded: Guarded, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for changes in ({"password_file": str(empty)}, {"ca_file": str(empty)}):
        with pytest.raises(TreeConfigurationError, match=str(empty)):
            await guarded.tree(**changes).start()


async def test_new_certificates_are_shown_at_the_next_connection(
    guarded: Guarded, tmp_path: Path
) -> None:
    own = Pair(tmp_path / "own.pem", tmp_path / "own.key")
    guarded.authority.issue("first").copy_to(own)
    tree = guarded.tree(certificate_file=str(own.certificate), key_file=str(own.key))
    await tree.start()
    own.certificate.write_text("half written")
    with pytest.raises(OSError, match=r"own\.pem"):
        tree._client.handler.create_connection(("127.0.0.1", guarded.port), hostname="localhost")
    guarded.authority.issue("second").copy_to(own)
    made = tree._client.handler.create_connection(("127.0.0.1", guarded.port), hostname="localhost")
    made.close()
    await tree.sync()
    await tree.stop()


async def test_a_password_that_is_gone_does_not_keep_a_new_session_from_being_opened(
    guarded: Guarded, tmp_path: Path
) -> None:
    own = tmp_path / "password"
    own.write_text("secret")
    tree = guarded.tree("/gone", password_file=str(own))
    await tree.start()
    await edits.ensure(tree, [("/imago", b""), ("/imago/c", b"ours")])
    own.unlink()
    await tree._renew()
    await until(lambda: tree.connection is RegistryConnection.CONNECTED)
    found = await tree.get("/imago/c")
    assert found is not None
    assert found.data == b"ours"
    await tree.stop()


def test_the_doctor_asks_over_tls(guarded: Guarded) -> None:
    (found,) = checks.check_zookeeper(f"localhost:{guarded.port}", 6000, guarded.access())
    assert (found.level, "over TLS" in found.message) == (checks.CheckLevel.OK, True)
    (found,) = checks.check_zookeeper(f"localhost:{guarded.port}", 6000)
    assert found.level is checks.CheckLevel.ERROR
