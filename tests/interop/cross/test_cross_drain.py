"""Original producers and consumers of both protocols while a shard is drained and comes back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.clusters.admin_http import ask
from imago_testing.interop.pairs import metaq_pair, rocketmq_pair
from imago_testing.interop.streams import Reader, Stream, until_acknowledged
from imago_testing.interop.targets import METAQ_TOPICS, ROCKETMQ_VERSIONS, imago_up
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.java.driver import JavaDriver

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("drain", clients=("metaq", "rocketmq4", "rocketmq5")),
]
SENDS_AROUND = 100
METAQ_TOPIC = METAQ_TOPICS[1]
TOPICS = (METAQ_TOPIC, *(f"drain-{version}" for version in ROCKETMQ_VERSIONS))
LINGER_MS = 4000
"""The drivers look for routes every second; by default clients do so every 30 s."""
METAQ_ERRORS_MAX = 2
"""MetaQ's producer closes its connections at each of the two changes, also under a request."""


@pytest.mark.full
def test_no_original_client_loses_a_message_when_a_shard_is_drained_and_comes_back(
    tmp_path: Path, drivers: dict[str, JavaDriver]
) -> None:
    for driver in drivers.values():
        driver.wait_ready()
    options = ["--set", f"broker.seal_linger_ms={LINGER_MS}"]
    with imago_up(tmp_path, shards=2, options=options) as cluster, ExitStack() as stack:
        zookeeper, namesrv = str(cluster["zookeeper"]), str(cluster["namesrv"])
        brokers: Any = cluster["brokers"]
        pairs = [metaq_pair(stack, drivers["metaq"], zookeeper, METAQ_TOPIC, "drain")]
        pairs += [
            rocketmq_pair(stack, drivers[f"rocketmq{n}"], n, namesrv, f"drain-{n}")
            for n in ROCKETMQ_VERSIONS
        ]
        for stream, reader in pairs:
            stack.enter_context(reader)
            stack.enter_context(stream)
        there_and_back([stream for stream, _ in pairs], str(brokers[1]["admin"]))
        for stream, reader in pairs:
            stream.stop()
            reader.until_got(set(stream.acknowledged))
            assert_undisturbed(stream, reader)


def there_and_back(producers: list[Stream], admin: str) -> None:
    """Drain the shard of this admin interface, and take that back."""
    until_acknowledged(producers, SENDS_AROUND)
    assert all(stored(admin, topic) > 0 for topic in TOPICS)
    ask(admin, "/admin/v1/drain", {})
    wait_until(lambda: drained(admin), seconds_max=90, what="shard-1 is drained")
    before = {topic: stored(admin, topic) for topic in TOPICS}
    until_acknowledged(producers, SENDS_AROUND)
    assert {topic: stored(admin, topic) for topic in TOPICS} == before
    ask(admin, "/admin/v1/undrain", {})
    wait_until(
        lambda: all(stored(admin, topic) > before[topic] for topic in TOPICS),
        seconds_max=60,
        what="shard-1 takes messages of every topic again",
    )
    until_acknowledged(producers, SENDS_AROUND)


def stored(admin: str, topic: str) -> int:
    return int(ask(admin, f"/admin/v1/topics/{topic}")["messages"])


def drained(admin: str) -> bool:
    shards = ask(admin, "/admin/v1/cluster")["shards"]
    return bool(next(shard["drained"] for shard in shards if shard["id"] == 1))


def assert_undisturbed(stream: Stream, reader: Reader) -> None:
    """Every message that was taken was consumed once; errors are few, and MetaQ's own."""
    errors_max = METAQ_ERRORS_MAX if stream.name == "metaq" else 0
    assert len(stream.errors) <= errors_max, (stream.name, stream.errors)
    assert reader.more_than_once() == [], f"{stream.name}: once each"
    assert set(reader.got) - set(stream.acknowledged) <= stream.errors.keys(), stream.name
