"""Settings that change while a broker with a bucket runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.features.tiered import tier
from imago_log.lifecycle.retention import Limits
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.features import tier_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HOUR, DAY = 3_600_000, 86_400_000


async def test_the_disk_keeps_its_own_time_and_the_bucket_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "RETRY_S", 0.05)
    settings = (
        f"tier.url=file://{tmp_path}/bucket",
        f"tier.local_retention_ms={HOUR}",
        "tier.local_retention_bytes_max=99",
        f"store.retention_ms={DAY}",
    )
    async with running_broker(tmp_path / "data", *settings) as broker:
        found = tier_of(broker)
        assert found is not None
        await until(lambda: found.reader.known)

        def kept() -> tuple[Limits, int | None]:
            archive = found._archive
            limits = broker.store.components.deleter.limits
            return limits, None if archive is None else archive.rules.retention_ms

        here = Limits(retention_ms=HOUR, retention_bytes=99)
        assert kept() == (here, DAY)
        store = replace(broker.config.store, retention_ms=90 * DAY)
        broker.apply(replace(broker.config, store=store))
        assert kept() == (here, 90 * DAY)
        found.start()  # it leads again
        await until(lambda: found.reader.known)
        assert kept() == (here, 90 * DAY)
        store = replace(broker.config.store, retention_ms=HOUR // 2)
        broker.apply(replace(broker.config, store=store))
        assert kept() == (replace(here, retention_ms=HOUR // 2), HOUR // 2)
