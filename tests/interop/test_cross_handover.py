"""Original producers and consumers of both protocols while the master of their shard stops."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.members import Members
from imago_testing.interop.pairs import metaq_pair, rocketmq_pair
from imago_testing.interop.streams import Reader, Stream, until_acknowledged
from imago_testing.interop.targets import METAQ_TOPICS, ROCKETMQ_VERSIONS, imago_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_testing.java.driver import JavaDriver

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(300),
    pytest.mark.shows("handover", clients=("metaq", "rocketmq4", "rocketmq5")),
]
SENDS_AROUND = 100
"""Messages of each producer before the master is asked to stop, and after another leads."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, object]]:
    """One shard of three members."""
    with imago_up(
        tmp_path_factory.mktemp("cluster"), shards=1, replicas=3, options=["--no-restart"]
    ) as ready:
        yield ready


def test_no_original_client_sees_an_error_when_the_master_stops_in_order(
    cluster: Mapping[str, object], drivers: dict[str, JavaDriver]
) -> None:
    for driver in drivers.values():
        driver.wait_ready()
    master = Members(cluster).master("shard-0")
    assert master is not None
    with ExitStack() as stack:
        namesrv = str(cluster["namesrv"])
        zookeeper = str(cluster["zookeeper"])
        pairs = [metaq_pair(stack, drivers["metaq"], zookeeper, METAQ_TOPICS[0], "handover")]
        pairs += [
            rocketmq_pair(stack, drivers[f"rocketmq{n}"], n, namesrv, f"handover-{n}", retries=0)
            for n in ROCKETMQ_VERSIONS
        ]
        for stream, reader in pairs:
            stack.enter_context(reader)
            stack.enter_context(stream)
        producers = [stream for stream, _ in pairs]
        until_acknowledged(producers, SENDS_AROUND)
        master.signal(signal.SIGTERM)
        until_acknowledged(producers, 5 * SENDS_AROUND)
        for stream, reader in pairs:
            stream.stop()
            reader.until_got(set(stream.acknowledged))
            assert_undisturbed(stream, reader)


def assert_undisturbed(stream: Stream, reader: Reader) -> None:
    """Every message was taken without an error and consumed once.

    For MetaQ's producer that is so because its consumer has the same session factory: on each
    change of a topic's brokers the client closes connections that nobody else uses.
    """
    assert stream.errors == {}, stream.name
    assert reader.more_than_once() == [], f"{stream.name}: once each"
    assert set(reader.got) == set(stream.acknowledged), stream.name
