"""A real broker, told and given files as the operator's pods are, at a ZooKeeper with rights.

The operator has no way to ZooKeeper but brokers: what it reads and writes there goes through one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app import Broker
from imago_operator.brokers.admin import AdminClient
from imago_operator.brokers.http import BrokerHttp
from imago_operator.manifests.config import registry_user_secret
from imago_operator.model import names
from imago_operator.model.secret_data import decoded
from imago_testing.operated.played_pod import Secrets, in_pod
from imago_testing.operated.resources import wanted
from imago_testing.peers.admin import TOKEN
from imago_testing.processes.guarded_zookeeper import GuardedZooKeeper
from imago_testing.processes.registry_rights import ROOTS, nodes_below, taken, wrong_rights
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_broker.config import BrokerConfig
    from imago_operator.model.desired import Desired

pytestmark = [pytest.mark.zookeeper]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedZooKeeper]:
    made = GuardedZooKeeper(tmp_path)
    with running_zookeeper(tmp_path / "zookeeper", more=made.more) as made.server:
        yield made


def external(guarded: GuardedZooKeeper) -> tuple[Desired, Secrets]:
    """Return a cluster at a ZooKeeper with TLS, and the Secrets that its owner has made."""
    said = {
        "servers": [guarded.connect()],
        "tls": {"secretName": "zk-tls", "clientCertificate": True},
        "auth": {"secretName": "zk-user"},
    }
    files = {
        "ca.crt": guarded.authority.file,
        "tls.crt": guarded.shown.certificate,
        "tls.key": guarded.shown.key,
    }
    desired = wanted({"spec.brokers.replicasPerShard": 1, "spec.zookeeper": {"external": said}})
    return desired, {
        "zk-tls": {name: Path(file).read_text() for name, file in files.items()},
        "zk-user": {"username": "brokers", "password": guarded.password.read_text()},
    }


def managed(_: GuardedZooKeeper) -> tuple[Desired, Secrets]:
    """Return a cluster that says nothing of users, and the Secret that the operator makes."""
    plain = {"managed": {"tls": "None"}}
    desired = wanted({"spec.brokers.replicasPerShard": 1, "spec.zookeeper": plain})
    name = names.registry_user("demo")
    return desired, {name: decoded(registry_user_secret(desired, name, "made up"))}


async def check(guarded: GuardedZooKeeper, config: BrokerConfig, user: Mapping[str, str]) -> None:
    """Have the operator read and write through the broker, and a stranger try the same."""
    broker = Broker(config)
    await broker.start()
    try:
        async with BrokerHttp(lambda: "id") as http:
            admin = AdminClient(http.with_token(TOKEN))
            url = f"http://127.0.0.1:{broker.ports.admin_port}"
            epoch = await admin.raise_epoch([url])
            await admin.cordon([url], 0, operator_epoch=epoch)
            found = await admin.registry([url])
            assert found is not None
            assert found.connected
            assert found.cluster_id
            assert (found.operator_epoch, found.shards[0].cordoned) == (epoch, True)
        who: Any = [("digest", f"{user['username']}:{user['password'].strip()}")]
        with guarded.client(auth_data=who) as insider, guarded.client() as stranger:
            paths = [path for root in ROOTS for path in nodes_below(insider, root)]
            assert {"/imago/demo/id", "/imago/demo/operator", "/meta/brokers/ids"} <= set(paths)
            assert wrong_rights(insider, paths, user["username"]) == []
            assert taken(stranger, paths) == []
    finally:
        await broker.stop()


@pytest.mark.full
async def test_at_an_external_one_with_tls_a_certificate_and_a_user(
    guarded: GuardedZooKeeper, tmp_path: Path
) -> None:
    desired, secrets = external(guarded)
    config = in_pod(desired, secrets, tmp_path / "pod")
    assert config.zookeeper.connect == guarded.connect()
    await check(guarded, config, secrets["zk-user"])


async def test_at_a_managed_one_without_a_word_in_the_spec(
    guarded: GuardedZooKeeper, tmp_path: Path
) -> None:
    desired, secrets = managed(guarded)
    config = in_pod(desired, secrets, tmp_path / "pod", connect=guarded.server.address)
    await check(guarded, config, secrets[names.registry_user("demo")])
