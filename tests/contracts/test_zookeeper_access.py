"""A real ZooKeeper with TLS, a user and rights: who reaches its port has no part in the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from imago_broker.cluster.edits import edits
from imago_broker.cluster.tree import NodeError, TreeConfigurationError, TreeUnavailableError
from imago_broker.cluster.zookeeper import ZooKeeperTree
from imago_broker.model.registry.cluster import ForeignBroker, RegistryConnection
from imago_broker.model.topics.topics import TopicConfig
from imago_cli.doctor import checks
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.processes.certificates import Authority, Pair
from imago_testing.processes.guarded_zookeeper import GuardedZooKeeper as Guarded
from imago_testing.processes.registry_rights import ROOTS, nodes_below, taken, wrong_rights
from imago_testing.processes.servers import wait_until
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.zookeeper]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with running_zookeeper(made.folder / "server", more=made.more) as made.server:
        yield made


@pytest.fixture
def stranger(guarded: Guarded) -> Iterator[Any]:
    """Somebody who reaches the port without TLS, and is nobody."""
    with guarded.client() as client:
        yield client


FOREIGN = ForeignBroker(
    cluster="other",
    broker_name="broker-a",
    broker_id=0,
    address="10.0.0.1:10911",
    data_version={"stateVersion": 0, "timestamp": 1700000000000, "counter": 1},
    topics={"orders": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}},
)


async def test_strangers_read_what_metaqs_clients_need_and_write_their_groups_only(
    guarded: Guarded, stranger: Any, tmp_path: Path
) -> None:
    settings = [f"zookeeper.{key}={value}" for key, value in guarded.settings().items()]
    settings.append(f"zookeeper.connect={guarded.connect()}")
    async with running_broker(tmp_path / "data", *settings) as broker:
        broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))
        await asyncio.to_thread(
            wait_until,
            lambda: stranger.exists("/meta/brokers/topics-pub/orders/0-m"),
            seconds_max=50,
            what="the topic is shown",
        )
        assert stranger.get("/meta/brokers/ids/0/master")[0].startswith(b"meta://")
        registry = broker.coordinator
        await registry.pipelines.raise_pipeline_epoch("nightly", 1)
        await registry.put_foreign(FOREIGN)
        await registry.marks.put_kv("SPACE", "key", "value")
        await registry.metaq_consumers.set_metaq_offset("orders", "ours", 0, 7)
        stranger.create("/meta/consumers/readers/ids/one", b"", makepath=True, ephemeral=True)
        offsets = stranger.create("/meta/consumers/readers/offsets/o", b"", makepath=True)
        stranger.set(offsets, b"7")
        stranger.delete("/meta/consumers/ours/offsets/orders/0-0")
        with guarded.insider() as insider:
            paths = [path for root in ROOTS for path in nodes_below(insider, root)]
            kinds = {path.split("/")[3] for path in paths if path.count("/") > 2}
            assert kinds >= {"id", "operator", "pipelines", "shards", "brokers", "topics"}
            assert any(path.startswith("/imago/imago/namesrv/foreign/") for path in paths)
            assert "/imago/imago/pipelines/nightly" in paths
            assert wrong_rights(insider, paths) == []
        assert taken(stranger, paths) == []
        with pytest.raises(NoAuthError):
            stranger.create("/imago/imago/brokers/0-7", b"{}")


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


async def protecting(tree: ZooKeeperTree) -> None:
    """Start a session, and wait until it has walked over what there is."""
    await tree.start()
    assert tree._protecting is not None
    await asyncio.wait_for(tree._protecting, 50)


async def test_a_strangers_node_keeps_no_other_from_being_protected(
    guarded: Guarded, stranger: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = guarded.tree("/mixed", protect=False)
    await protecting(before)
    folders = ["/imago", "/imago/c", "/imago/c/shards", "/meta", "/meta/brokers"]
    await edits.ensure(before, [(path, b"x") for path in folders])
    # Its maker alone may do anything with it, even read its rights.
    his = [make_digest_acl("stranger", "his", all=True)]
    stranger.create("/mixed/imago/c/hidden", b"", acl=his)
    stranger.create("/mixed/meta/brokers/hidden", b"", acl=his)
    await edits.ensure(before, [("/imago/c/shards/7", b"x"), ("/meta/brokers/ids", b"x")])
    after = guarded.tree("/mixed")
    await protecting(after)
    with pytest.raises(NoAuthError):
        stranger.get("/mixed/imago/c/shards/7")
    with pytest.raises(NoAuthError):
        stranger.set("/mixed/meta/brokers/ids", b"y")
    said = [each for each in caplog.messages if each.startswith("zookeeper_not_protected")]
    assert len(said) == 1
    assert "nodes=2" in said[0]
    assert "/hidden" in said[0]
    await after.stop()
    await before.stop()


async def test_folders_that_others_made_are_not_theirs_to_close(
    guarded: Guarded, stranger: Any
) -> None:
    for path in ("/found/imago", "/found/meta"):
        stranger.create(path, b"", makepath=True)
    tree = guarded.tree("/found")
    await protecting(tree)
    for path in ("/found/imago", "/found/meta"):
        with pytest.raises(NoAuthError):
            stranger.set_acls(path, [make_digest_acl("stranger", "his", all=True)])
    stranger.create("/found/meta/consumers/readers", b"", makepath=True)
    await tree.stop()


async def test_who_shares_the_folder_of_clusters_leaves_it_to_its_maker(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    first = guarded.tree("/two")
    await protecting(first)
    await edits.ensure(first, [("/imago", b""), ("/meta", b"")])
    password = tmp_path / "other"
    password.write_text("other")
    second = guarded.tree("/two", user="others", password_file=str(password))
    await protecting(second)
    await edits.ensure(second, [("/imago/d", b"theirs")])
    assert not [each for each in caplog.messages if "not_protected" in each]
    await second.stop()
    await first.stop()


async def test_nodes_are_everybodys_again_before_the_user_goes(
    guarded: Guarded, stranger: Any
) -> None:
    ours = guarded.tree("/back")
    await ours.start()
    paths = ["/imago", "/imago/c", "/imago/c/id", "/meta", "/meta/brokers", "/meta/brokers/ids"]
    await edits.ensure(ours, [(path, b"x") for path in paths])
    ours_alone = [make_digest_acl("dba", "dba", all=True)]
    stranger.create("/back/meta/consumers", b"", acl=ours_alone)
    await ours.stop()
    leaving = guarded.tree("/back", protect=False)
    await protecting(leaving)
    without = guarded.tree("/back", user="", password_file="")
    await without.start()
    for path in paths:
        assert stranger.get_acls(f"/back{path}")[0] == OPEN_ACL_UNSAFE, path
    found = await without.get("/imago/c/id")
    assert found is not None
    await without.stop()
    await leaving.stop()


@pytest.mark.full
async def test_a_lost_password_is_followed_by_another_where_the_server_lets_it(
    tmp_path: Path,
) -> None:
    """What the page says: ZooKeeper without rights for a while, `zookeeper.skipACL=yes`."""
    made = Guarded(tmp_path)
    with running_zookeeper(tmp_path / "server", more=made.more) as made.server:
        before = made.tree()
        await before.start()
        await edits.ensure(before, [("/imago", b""), ("/imago/c", b"ours"), ("/meta", b"")])
        await before.stop()
    made.password.write_text("another")
    with running_zookeeper(tmp_path / "server", more=made.more | {"skipACL": "yes"}) as made.server:
        after = made.tree()
        await protecting(after)
        await after.stop()
    with running_zookeeper(tmp_path / "server", more=made.more) as made.server:
        later = made.tree()
        await later.start()
        found = await later.get("/imago/c")
        assert found is not None
        await edits.ensure(later, [("/imago/c/new", b"")])
        await later.stop()
        with made.client() as stranger, pytest.raises(NoAuthError):
            stranger.get("/imago/c")


async def test_the_tree_of_an_original_master_stays_open_to_it(
    guarded: Guarded, stranger: Any
) -> None:
    master = "/original/meta/brokers/ids/0/master"
    stranger.create(master, b"meta://localhost:8123", makepath=True)
    tree = guarded.tree("/original", public_shared=True)
    await protecting(tree)
    await edits.ensure(tree, [("/imago", b""), ("/imago/c", b""), ("/meta/brokers/topics", b"")])
    for path in ("/original/meta/brokers", "/original/meta/brokers/topics", master):
        assert stranger.get_acls(path)[0] == OPEN_ACL_UNSAFE, path
    with pytest.raises(NoAuthError):
        stranger.get_children("/original/imago/c")
    await tree.stop()


@pytest.mark.parametrize("who", ["nobody", "another authority", "expired", "trusts another"])
async def test_whoever_has_no_certificate_is_not_served(
    guarded: Guarded, tmp_path: Path, who: str
) -> None:
    other = Authority(tmp_path / "other")
    shown: dict[str, Pair | None] = {
        "nobody": None,
        "another authority": other.issue("broker"),
        "expired": guarded.authority.issue("expired", days=-1),
        "trusts another": guarded.shown,
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


@pytest.mark.full
def test_the_doctor_asks_over_tls(guarded: Guarded) -> None:
    (found,) = checks.check_zookeeper(f"localhost:{guarded.port}", 6000, guarded.access())
    assert (found.level, "over TLS" in found.message) == (checks.CheckLevel.OK, True)
    (found,) = checks.check_zookeeper(f"localhost:{guarded.port}", 6000)
    assert found.level is checks.CheckLevel.ERROR
