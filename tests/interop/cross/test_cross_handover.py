"""Original producers and consumers of both protocols while the master of their shard stops."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.drivers import PARTS, ROCKETMQ5
from imago_testing.interop.members import Members
from imago_testing.interop.pairs import metaq_pair, rocketmq_pair
from imago_testing.interop.streams import Reader, Stream, until_acknowledged
from imago_testing.interop.targets import METAQ_TOPICS, ROCKETMQ_VERSIONS, imago_up
from imago_testing.java.driver import SMALL, JavaDriver, java_command
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [
    pytest.mark.interop,
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


@pytest.mark.full
def test_a_client_of_5_hears_that_a_broker_goes_away(tmp_path: Path) -> None:
    """A shard of one member passes nothing on: what it refuses, the client sends to another."""
    with ExitStack() as stack:
        cluster = stack.enter_context(imago_up(tmp_path, shards=2, options=["--no-restart"]))
        driver, log = logging_driver(tmp_path / "client")
        stack.callback(driver.close)
        namesrv = str(cluster["namesrv"])
        stream, reader = rocketmq_pair(stack, driver.wait_ready(), 5, namesrv, "going-away")
        stack.enter_context(reader)
        stack.enter_context(stream)
        until_acknowledged([stream], SENDS_AROUND)
        stops = Members(cluster).master("shard-1")
        assert stops is not None
        stops.signal(signal.SIGTERM)
        wait_until(
            lambda: "Receive go away from channelId" in log.read_text(errors="replace"),
            seconds_max=60,
            what="the client's word that it was told to go away",
        )
        wait_until(
            lambda: stops.ask("/admin/v1/status") is None,
            seconds_max=60,
            what="the end of that broker",
        )
        count = len(stream.acknowledged)
        until_acknowledged([stream], SENDS_AROUND)
        stream.stop()
        reader.until_got(set(stream.acknowledged[count + 1 :]))
        assert stream.errors == {}
        assert reader.more_than_once() == []


def logging_driver(home: Path) -> tuple[JavaDriver, Path]:
    """Start a driver whose client logs as it does by its own settings; return the log, too."""
    module, main = PARTS[ROCKETMQ5]
    flags = (*SMALL, "-Drmq.logback.configurationFile=rmq.client.logback.xml")
    driver = JavaDriver(ROCKETMQ5, java_command(module, main, home, flags=flags), home)
    return driver, home / "logs" / "rocketmqlogs" / "rocketmq_client.log"


def assert_undisturbed(stream: Stream, reader: Reader) -> None:
    """Every message was taken without an error and consumed once.

    For MetaQ's producer that is so because its consumer has the same session factory: on each
    change of a topic's brokers the client closes connections that nobody else uses.
    """
    assert stream.errors == {}, stream.name
    assert reader.more_than_once() == [], f"{stream.name}: once each"
    assert set(reader.got) == set(stream.acknowledged), stream.name
