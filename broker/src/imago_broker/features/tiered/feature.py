"""The tier as it plugs in, where a bucket is named: no request codes, metrics, a role."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_broker.errors import ExitCode, FatalError
from imago_broker.features.feature import Feature
from imago_broker.metrics import counter, gauge
from imago_broker.model import feature_level
from imago_broker.model.registry.cluster import shard_name
from imago_broker.processors.rocketmq.installed import Installed
from imago_wire.hot import QueueTail
from imago_wire.system_topics import is_system

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.config import BrokerConfig
    from imago_broker.features.tiered.tier import Tier
    from imago_broker.metrics import Sample
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly

FOLDER = "tier-cache"


def _install(parts: RocketmqAssembly) -> Installed | None:
    """Make it, if a bucket is named. FatalError: that is not said as it has to be."""
    config = parts.broker.config
    return _made(parts, config) if config.tier.url else None


def _made(parts: RocketmqAssembly, config: BrokerConfig) -> Installed:
    # Few brokers have a bucket: the others do not load what speaks to one.
    from imago_broker.features.tiered.archiving import TierRules  # noqa: PLC0415
    from imago_broker.features.tiered.blocks import BlockCache  # noqa: PLC0415
    from imago_broker.features.tiered.bucket import ShardBucket  # noqa: PLC0415
    from imago_broker.features.tiered.tier import Tier  # noqa: PLC0415
    from imago_objects import ObjectsConfig, ObjectsError, open_objects  # noqa: PLC0415

    section, broker, cluster = config.tier, parts.broker, config.broker.cluster
    try:
        objects = open_objects(
            ObjectsConfig(
                section.url,
                endpoint=section.endpoint,
                region=section.region,
                credentials_folder=section.credentials_folder,
                ca_file=section.ca_file,
                path_style=section.path_style,
                timeout_s=section.timeout_ms / 1000,
            )
        )
    except ObjectsError as error:
        raise FatalError(f"tier.url: {error}", exit_code=ExitCode.USAGE) from error

    def wake(key: tuple[str, int]) -> None:
        tail = QueueTail(key[0].encode(), key[1], dual=False, next_offset=0)
        parts.delivery.hold.arrived([tail])
        for feature in parts.features:
            feature.arrived([tail])

    blocks = BlockCache(
        objects,
        Path(config.broker.data_dir) / FOLDER,
        broker.clock,
        bytes_max=section.cache_bytes_max,
        fetches_max=section.fetches_max,
        wake=wake,
    )
    tier = Tier(
        broker.messages.store,
        ShardBucket(objects, cluster, shard_name(config.broker.shard)),
        blocks,
        broker.clock,
        cluster_id=broker.cluster_id,
        rules=TierRules(
            left_out=lambda topic: is_system(topic, [cluster]),
            retention_ms=config.store.retention_ms,
            retention_bytes=section.retention_bytes_max,
        ),
    )

    def needed_from() -> int:
        """Keep all here until each broker that may lead reads from the bucket."""
        stands = broker.registry.view().feature_level
        return tier.needed_from() if stands >= feature_level.TIERED else broker.store.log_start

    def apply(changed: BrokerConfig) -> None:
        tier.keep(changed.store.retention_ms)

    return Installed(
        parts=tier,
        rows=[],
        samples=_samples(tier),
        start=tier.start,
        stop=tier.stop,
        needed_from=needed_from,
        told=tier.status,
        apply=apply,
    )


def _samples(tier: Tier) -> Sequence[Sample]:
    counts, blocks, reader = tier.counts, tier.blocks, tier.reader
    return [
        gauge("tier_bytes", "Bytes of this shard in the bucket.", lambda: reader.manifest.size),
        gauge(
            "tier_waiting_bytes",
            "Bytes of whole files of the log that are not in the bucket yet.",
            lambda: tier.waiting_bytes,
        ),
        gauge("tier_away", "1 while the bucket fails or does not answer.", lambda: tier.away),
        gauge("tier_cache_bytes", "Bytes from the bucket on the disk.", lambda: blocks.size),
        counter("tier_files_archived", "Files taken there.", lambda: counts.files_archived),
        counter("tier_files_expired", "Files deleted there.", lambda: counts.files_expired),
        counter("tier_failures", "Tries at the bucket that failed.", lambda: counts.failures),
        counter("tier_reads", "Reads of what only the bucket has.", lambda: reader.reads),
        counter("tier_misses", "Of them, those that had to be fetched.", lambda: blocks.misses),
        counter("tier_fetched_bytes", "Bytes fetched for readers.", lambda: blocks.fetched_bytes),
    ]


TIERED: Final = Feature(rights={}, limited={}, install=_install)
