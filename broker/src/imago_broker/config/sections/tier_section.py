"""The section about old files of the log in a bucket."""

from __future__ import annotations

from dataclasses import dataclass

from imago_broker.config.sections.section import check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSection:
    """Old files of the log in a bucket, from which they are read as if they were here."""

    url: str = setting(
        "",
        "Where they go: s3://bucket/prefix, gs://…, az://account/container/prefix or file:///folder;"
        " empty: nowhere. `store.retention_ms` then says how long they are kept there.",
        pattern=r"|(s3|gs|az)://[^/?#@]+(/[^?#]*)?|file:///[^?#]+",
        written="a bucket, like s3://bucket/prefix",
    )
    endpoint: str = setting(
        "", "Address of a service that is not the cloud's own, with http:// or https://."
    )
    region: str = setting("", "Region of the bucket; empty: us-east-1.")
    credentials_folder: str = setting(
        "",
        "Folder with `access_key_id` and `secret_access_key` (S3), `service_account.json` (Google)"
        " or `account_name` and `account_key` (Azure); empty: those of the environment or the pod.",
    )
    ca_file: str = setting("", "PEM file of authorities to trust besides those of the system.")
    path_style: bool = setting(
        True, "Whether the bucket is named in the path, and not in the host's name."
    )
    timeout_ms: int = setting(
        30_000, "Patience with one try of one request.", low=100, high=600_000
    )
    local_retention_ms: int = setting(
        24 * 3_600_000,
        "How long messages stay on the disk, too; 0: as long as in the bucket. What is not in the"
        " bucket yet stays.",
        low=0,
    )
    local_retention_bytes_max: int = setting(
        0, "Size of the log on the disk above which its oldest file goes; 0: none.", low=0
    )
    retention_bytes_max: int = setting(
        0, "Size in the bucket, of each shard, above which its oldest file goes; 0: none.", low=0
    )
    cache_bytes_max: int = setting(
        1 << 30,
        "Disk for what was read from the bucket, beside the log.",
        low=64 << 20,
    )
    fetches_max: int = setting(
        4, "Parts of 1 MiB that are fetched at a time, for all readers.", low=1, high=64
    )

    def __post_init__(self) -> None:
        check(self)

    def disk_keeps(self, retention_ms: int, retention_bytes: int) -> tuple[int, int]:
        """Return how much of the log disks keep where so much of it is kept; 0: no limit."""
        if not self.url:
            return retention_ms, retention_bytes
        return (
            _least(retention_ms, self.local_retention_ms),
            _least(retention_bytes, self.local_retention_bytes_max),
        )


def _least(*limits: int) -> int:
    return min((each for each in limits if each), default=0)
