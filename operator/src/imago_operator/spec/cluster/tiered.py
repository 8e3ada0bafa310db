"""The part of an ImagoCluster that says where old messages go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from imago_operator.spec.schema.fields import described
from imago_operator.spec.schema.rule import Rule
from imago_operator.spec.schema.values import Duration, Quantity

BUCKET_PATTERN: Final = r"^(s3|gs|az)://[^/?#@]+(/[^?#]*)?$"
ENDPOINT_PATTERN: Final = r"^https?://[^/?#@]+/?$"
TIER_SECTION: Final = "tier."


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStorage:
    """A bucket with the old messages of all shards."""

    url: str = described(
        "Bucket and prefix: s3://bucket/prefix, gs://bucket/prefix or"
        " az://account/container/prefix. Messages are kept there for as long as the setting"
        " store.retention_ms says.",
        pattern=BUCKET_PATTERN,
        size_max=1024,
    )
    endpoint: str | None = described(
        "Address of a service that is not the cloud's own, such as https://minio.example:9000.",
        default=None,
        pattern=ENDPOINT_PATTERN,
        size_max=260,
    )
    region: str | None = described("Region of the bucket.", default=None, size_max=64)
    credentials_secret_name: str | None = described(
        "Secret with access_key_id and secret_access_key (S3), service_account.json (Google), or"
        " account_name and account_key (Azure); its changes are taken without a restart. Unless"
        " given, what the pod's own identity may do.",
        default=None,
        size_max=253,
        size_min=1,
    )
    local_retention: Duration = described(
        "How long messages stay on the claims, too; 0s keeps them there as long as in the bucket.",
        default=Duration("24h"),
    )
    cache_size: Quantity = described(
        "Part of each claim for what was read from the bucket.", default=Quantity("1Gi")
    )


def _leaves_it_alone(node: Any) -> bool:
    said = node.get("config", {})
    return "tieredStorage" not in node or not any(key[:5] == TIER_SECTION for key in said)


def _cache_is_large_enough(node: Any) -> bool:
    return Quantity(node["cacheSize"]).bytes >= 64 << 20


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        path="spec.brokers",
        cel="!has(self.tieredStorage) || !has(self.config)"
        " || self.config.all(key, !key.startsWith('tier.'))",
        holds=_leaves_it_alone,
        message="with tieredStorage the operator says the settings tier.*: leave them out of"
        " config",
    ),
    Rule(
        path="spec.brokers.tieredStorage",
        cel="quantity(self.cacheSize).compareTo(quantity('64Mi')) >= 0",
        holds=_cache_is_large_enough,
        message="cacheSize must be at least 64Mi",
    ),
    Rule(
        path="spec.brokers",
        cel="!has(oldSelf.tieredStorage) || has(self.tieredStorage)",
        holds_after=lambda node, old: "tieredStorage" not in old or "tieredStorage" in node,
        message="old messages are in the bucket alone: tieredStorage cannot be taken away",
    ),
)
