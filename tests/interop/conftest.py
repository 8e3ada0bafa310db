"""One target and one driver process per client version, for the whole run."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.drivers import METAQ, ROCKETMQ4, ROCKETMQ5, running_drivers
from imago_testing.interop.metaq import MetaqClient
from imago_testing.interop.pairs import has_masters
from imago_testing.interop.rocketmq import Admin, RocketmqClient
from imago_testing.interop.targets import (
    METAQ_TOPICS,
    Target,
    applies,
    chosen_target,
    running_target,
)
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_testing.java.driver import JavaDriver

HERE = Path(__file__).parent
OLDER, NEWER = "rocketmq4", "rocketmq5"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not apply to the target; mark what only repeats the newer client's."""
    for item in items:
        parameters = getattr(item, "callspec", None)
        is_older = parameters is not None and parameters.params.get("rocketmq") == OLDER
        if is_older and not item.get_closest_marker("both_clients"):
            item.add_marker(pytest.mark.full)
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    target = chosen_target()
    out = {item for item in ours if not applies(item.path.relative_to(HERE).parts[0], target)}
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=list(out))


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, JavaDriver]]:
    """The driver processes that the target needs, started side by side."""
    target = chosen_target()
    names = [METAQ] if applies("metaq", target) else []
    names += [ROCKETMQ4, ROCKETMQ5] if applies("rocketmq", target) else []
    with running_drivers(names, tmp_path_factory.mktemp) as started:
        yield started


@pytest.fixture(scope="session")
def target(
    drivers: dict[str, JavaDriver], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    # After the drivers: they come up while the target does, and go before it does.
    with running_target(chosen_target(), tmp_path_factory.mktemp("target")) as target:
        for driver in drivers.values():
            driver.wait_ready()
        yield target
        for driver in drivers.values():
            driver.close()


@pytest.fixture(scope="session")
def metaq(target: Target, drivers: dict[str, JavaDriver]) -> MetaqClient:
    return MetaqClient(drivers["metaq"], target.zookeeper, target.metaq_urls)


@pytest.fixture(scope="session")
def rocketmq4(target: Target, drivers: dict[str, JavaDriver]) -> Iterator[RocketmqClient]:
    client = RocketmqClient(4, drivers["rocketmq4"], target.namesrv[4])
    yield client
    client.settle()


@pytest.fixture(scope="session")
def rocketmq5(target: Target, drivers: dict[str, JavaDriver]) -> Iterator[RocketmqClient]:
    client = RocketmqClient(5, drivers["rocketmq5"], target.namesrv[5])
    yield client
    client.settle()


@pytest.fixture(scope="session", params=[OLDER, NEWER], ids=["4.9", "5"])
def rocketmq(request: pytest.FixtureRequest) -> RocketmqClient:
    """Each client version in turn."""
    client = request.getfixturevalue(request.param)
    assert isinstance(client, RocketmqClient)
    return client


@pytest.fixture(scope="session")
def admin(rocketmq: RocketmqClient) -> Iterator[Admin]:
    with rocketmq.admin() as admin:
        wait_until(
            lambda: has_masters(admin), seconds_max=60, what="the name service knows a broker"
        )
        yield admin


_serial = itertools.count(1)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make names that no other test uses and that say which test made them."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:60]
    return lambda prefix: f"{prefix}-{next(_serial)}-{test}".rstrip("-")


@pytest.fixture
def topic(admin: Admin, unique: Callable[[str], str]) -> str:
    """A new topic of four queues on each broker, with a route."""
    return new_topic(admin, unique("topic"))


def new_topic(admin: Admin, name: str, *, queues: int = 4) -> str:
    admin.create_topic(name, queues=queues)
    masters = set(admin.masters())
    wait_until(
        lambda: (
            name in admin.call("topics")
            and set(admin.call("route", topic=name)["queues"]) == masters
        ),
        seconds_max=60,
        what=f"all brokers are in the route of {name}",
    )
    return name


@pytest.fixture(scope="session")
def metaq_topics() -> Iterator[str]:
    """The configured MetaQ topics that no test has taken yet."""
    return iter(METAQ_TOPICS)


@pytest.fixture
def metaq_topic(metaq_topics: Iterator[str]) -> str:
    return next(metaq_topics)
