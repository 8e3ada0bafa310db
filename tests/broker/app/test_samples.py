"""What Prometheus reads of a broker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from prometheus_client import generate_latest

from imago_broker.app.metrics.group_metrics import group_samples
from imago_broker.metrics import registry
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import ShardBrokers
from imago_testing.peers.metaq import metaq_peer, put_place

if TYPE_CHECKING:
    from pathlib import Path


async def test_counters_and_gauges_follow_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "topics.t.queues=1") as broker:
        samples = registry(broker.collector)
        async with metaq_peer(broker.metaq_port) as peer:
            put_place(await peer.put("t", 0, b"hello"))
            assert (await peer.put("t", 9, b"hello")).startswith(b"result 500 ")
            text = generate_latest(samples).decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert lines["imago_metaq_cmd_put_total"] == "2.0"
    assert lines["imago_metaq_puts_stored_total"] == "1.0"
    assert lines["imago_metaq_put_failed_total"] == "1.0"
    assert lines["imago_messages_stored_total"] == "1.0"
    assert lines["imago_writable"] == "1.0"
    assert lines['imago_connections{port="metaq"}'] == "1.0"
    assert lines['imago_connections{port="rocketmq"}'] == "0.0"
    assert float(lines["imago_log_end_offset"]) > 0


REFERS: Final = ("of them", "of these", "of both", "the same", "those", "this of")
"""Words at the head of a text that mean another metric: Prometheus shows each one alone."""


async def test_each_metric_is_told_alone_and_in_base_units(tmp_path: Path) -> None:
    shard = ShardBrokers(tmp_path, replicas=2)
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    leader = shard.brokers[await shard.led()]
    families = {family.name: family for family in leader.collector.collect()}
    await shard.close()
    assert len(families) > 80
    for name, family in families.items():
        text = family.documentation
        assert len(text.split()) >= 2, f"{name}: {text}"
        assert not text.lower().startswith(REFERS), f"{name}: {text}"
        if "_ms" in name:
            base = re.sub("_ms_p[0-9]+$", "_ms", name).replace("_ms", "_seconds")
            assert base in families, f"{name}: its unit is no base unit"
            assert "use " in text, f"{name}: say what to read instead"


async def test_a_histogram_counts_what_took_less(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        times = broker.messages.append_times
        times.note(1_500_000, 3)
        times.note(60_000_000_000, 1)
        read = registry(broker.collector).get_sample_value
        counts = [
            read("imago_append_seconds_bucket", {"le": bound})
            for bound in ("0.001", "0.002", "5.0", "+Inf")
        ]
    assert counts == [0, 3, 3, 4]


async def test_lag_is_what_a_group_has_not_committed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "topics.t.queues=2") as broker:
        async with metaq_peer(broker.metaq_port) as peer:
            for queue in (0, 0, 1):
                put_place(await peer.put("t", queue, b"hello"))
        broker.offsets.commit("billing", "t", 0, 1)
        broker.offsets.commit("billing", "t", 1, 0)
        parts = (broker.role, broker.offsets, broker.store)
        samples = {sample.labels: sample.read() for sample in group_samples(*parts)}
    assert samples == {(("group", "billing"), ("topic", "t")): 2}
