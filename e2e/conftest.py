"""One Kubernetes for all stories; each has a namespace of its own or shares the first cluster."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from imago_e2e import cleaning, clusters, objects
from imago_e2e.clients import drivers_in_pod, start_pod
from imago_e2e.kube import Kube, is_rig
from imago_e2e.operator import Operator
from imago_e2e.spark_operator import SparkOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

STORY_SECONDS_MAX = 600
CLIENTS = "e2e-clients"
ORDER = (
    "test_install",
    "wrong_specs",
    "java",
    "user_from",
    "user_with_token",
    "tls_switched",
    "client_certificates",
    "registry_closed",
    "registry_encrypted",
    "topic",
    "pipeline",
    "configuration",
    "template",
    "operator_upgraded",
    "image",
    "former_version",
    "master_killed",
    "runbook",
    "zookeeper",
    "drained",
    "faults",
    "outside",
    "made_again",
    "scaled",
    "members_changed",
    "shape_changed",
    "backup_recovered",
    "mirrored",
    "old_files",
    "two_things",
    "operator_killed",
    "namespace",
    "partitioned",
    "uninstall",
)
"""Words in the names of stories, in the order in which they are told: what breaks more is later."""
LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the stories in order; leave those out that this cluster's nodes do not allow."""

    def place(item: pytest.Item) -> int:
        named = item.path.stem
        return next((n for n, word in enumerate(ORDER) if word in named), len(ORDER))

    items.sort(key=place)
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(STORY_SECONDS_MAX))
    if not is_rig():
        out = [item for item in items if item.get_closest_marker("own_nodes")]
        items[:] = [item for item in items if item not in out]
        if out:
            config.hook.pytest_deselected(items=out)
        config.stash[LEFT_OUT] = [item.name for item in out]


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say which stories are not told, and why."""
    why = "left out, since they reach into nodes, which only the suite's own cluster allows"
    return [f"{why}: {name}" for name in config.stash.get(LEFT_OUT, [])]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show everything that is to be known of the namespaces when a story fails."""
    report = yield
    kube = getattr(item, "funcargs", {}).get("kube")
    if report.failed and kube is not None:
        report.sections += [(f"namespace {n}", kube.report(n)) for n in kube.namespaces]
    return report


@pytest.fixture(scope="session")
def kube() -> Kube:
    found = Kube()
    found.run("version")
    return found


@pytest.fixture(scope="session")
def operator(kube: Kube) -> Operator:
    """The operator, installed by helm on a cluster that is empty but for what others have made.

    With E2E_KEEP=1 what a former run left is used again.
    """
    found = Operator(kube)
    if os.environ.get("E2E_KEEP") and found.installed():
        return found
    cleaning.clear(kube, found)
    found.install()
    return found


@pytest.fixture(scope="session")
def demo(kube: Kube, operator: Operator) -> Brokers:
    """The cluster that stories share: one shard of three members, all in sync."""
    assert operator.installed()
    return clusters.shared(kube)


@pytest.fixture(scope="session")
def pair(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster of two shards of three members, for stories of many things at once."""
    assert operator.installed()
    yield clusters.pair(kube)
    if not os.environ.get("E2E_KEEP"):
        kube.delete_namespace(clusters.PAIR)


@pytest.fixture
def whole(demo: Brokers) -> Iterator[Brokers]:
    """The shared cluster, in order when the story begins and when it ends."""
    demo.settled()
    yield demo
    demo.settled()


@pytest.fixture
def whole_until_now(demo: Brokers) -> Brokers:
    """The shared cluster, which this story takes away."""
    demo.settled()
    return demo


@pytest.fixture(scope="session")
def client_pod(kube: Kube) -> str:
    """The namespace of the pod with the original Java clients."""
    start_pod(kube, kube.namespace(CLIENTS))
    return CLIENTS


@pytest.fixture(scope="module")
def drivers(
    client_pod: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, JavaDriver]]:
    """Processes of the original clients of both protocols, in that pod."""
    with drivers_in_pod(client_pod, tmp_path_factory.mktemp("drivers")) as started:
        yield started


@pytest.fixture(scope="session")
def bucket(kube: Kube, operator: Operator) -> Iterator[None]:
    """MinIO with an empty bucket."""
    assert operator.installed()
    objects.start(kube)
    yield
    kube.delete_namespace(objects.NAMESPACE)


@pytest.fixture(scope="module")
def spark_operator(kube: Kube, demo: Brokers) -> Iterator[SparkOperator]:
    """kubeflow's spark-operator, for the namespace of the cluster that stories share."""
    found = SparkOperator(kube)
    found.provide(demo.namespace)
    yield found
    found.remove()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that nobody has used."""
    story = request.node.path.stem.removeprefix("test_").replace("_", "-")
    return f"{story}-{time.time_ns() // 1_000_000 % 100_000_000}"


@pytest.fixture
def account(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines that a story tells besides having passed; they are printed at its end."""
    told: list[str] = []
    yield told
    began = f"\n{request.node.path.stem}: "
    print(began + "\n  ".join(told), flush=True)
