"""The original Java client's XA transactions over the loss of the master that prepared them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.members import Members
from imago_testing.interop.metaq import MetaqClient
from imago_testing.interop.sharing import puts
from imago_testing.interop.targets import METAQ_TOPICS, imago_up
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_testing.interop.metaq import MetaqFactory
    from imago_testing.java.driver import JavaDriver

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("xa", clients=("metaq",)),
]
XA_OK = 0
COUNT = 6


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, object]]:
    """One shard of three members."""
    folder = tmp_path_factory.mktemp("cluster")
    with imago_up(folder, shards=1, replicas=3, options=["--no-restart"]) as ready:
        yield ready


def until_done(factory: MetaqFactory, topic: str, qualifier: str, step: str, xid: str) -> None:
    """Recover as a transaction manager does: with a new producer, until the step is done.

    The one that prepared is bound to its broker: its thread's resource asks that one for ever.
    """
    said: list[str] = []

    def is_done() -> bool:
        try:
            with factory.transactional([topic], xa=True, qualifier=qualifier) as producer:
                found = producer.recover()
                said.append(f"recovered {found}")
                if xid not in found:
                    return False
                producer.xa(step, xid)
        except DriverError as error:  # no master is there yet
            said.append(error.text)
            return False
        return True

    try:
        wait_until(is_done, seconds_max=120, what=f"{step} of {xid}", poll=0.5)
    except TimeoutError as error:
        raise AssertionError("\n".join(said[-20:])) from error


@pytest.mark.parametrize("step", ["commit", pytest.param("rollback", marks=pytest.mark.full)])
def test_transaction_prepared_at_a_master_that_is_killed_ends_at_the_next(
    cluster: Mapping[str, object], drivers: dict[str, JavaDriver], step: str
) -> None:
    driver, topic, xid = drivers["metaq"], METAQ_TOPICS[0], f"over-{step}"
    driver.wait_ready()
    members = Members(cluster)
    metaq = MetaqClient(driver, str(cluster["zookeeper"]), [])
    with (
        metaq.factory("xa") as factory,
        factory.transactional([topic], xa=True, qualifier=f"q-{step}") as producer,
    ):
        producer.xa("start", xid)
        results = producer.send(topic, puts(10, 10 + COUNT))
        producer.xa("end", xid)
        assert producer.xa("prepare", xid) == XA_OK
        first = members.master("shard-0")
        assert first is not None
        first.signal(signal.SIGKILL)
        until_done(factory, topic, f"q-{step}", step, xid)
        kept = [each.id for each in results] if step == "commit" else []

        def found() -> list[int]:
            try:
                return sorted(each.id for each in factory.browse(topic))
            except DriverError:
                return []

        wait_until(lambda: found() == sorted(kept), seconds_max=60, what="what was committed")
        with factory.transactional([topic], xa=True, qualifier=f"q-{step}") as again:
            assert again.recover() == []
