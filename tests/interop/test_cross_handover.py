"""Original producers and consumers of both protocols while the master of their shard stops."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.members import Members
from imago_testing.interop.pairs import metaq_pair, rocketmq_pair
from imago_testing.interop.streams import OWN_TIMEOUT, Reader, Stream, until_acknowledged
from imago_testing.interop.targets import METAQ_TOPICS, ROCKETMQ_VERSIONS, imago_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_testing.java.driver import JavaDriver

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
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
            rocketmq_pair(stack, drivers[f"rocketmq{n}"], n, namesrv, f"handover-{n}")
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

    MetaQ's client closes its connections whenever the registry's tree changes under one of its
    topics, also under a request of its own, to which it then answers a time-out itself. That is
    the one error there may be; the message itself is stored once or not at all.
    """
    own_doing = {body for body, error in stream.errors.items() if OWN_TIMEOUT in error}
    assert stream.errors.keys() - own_doing == set(), stream.errors
    assert len(own_doing) <= (stream.name == "metaq"), own_doing
    assert len(set(reader.got)) == len(reader.got), f"{stream.name}: once each"
    assert set(reader.got) - set(stream.acknowledged) <= own_doing, stream.name
