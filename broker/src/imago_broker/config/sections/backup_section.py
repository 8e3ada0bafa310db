"""Where a cluster's backups go."""

from __future__ import annotations

from dataclasses import dataclass

from imago_broker.config.sections.section import check, setting

URLS = r"|(s3|gs|az)://[^@?#\s]+|file:///[^@?#\s]*"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSection:
    """A bucket or folder that all members reach. Nobody can have a backup go anywhere else."""

    url: str = setting(
        "",
        "Where backups go: `s3://BUCKET/PREFIX`, `gs://…`, `az://…`, or `file:///FOLDER`, which all"
        " members mount. Empty: none are taken. It holds all messages and all users' secrets.",
        pattern=URLS,
        written="s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER",
        dynamic=True,
    )
    endpoint: str = setting(
        "", "Address of a service that is not the cloud's own, `https://HOST:PORT`.", dynamic=True
    )
    region: str = setting("", "Region of the bucket, where it needs one.", dynamic=True)
    credentials_folder: str = setting(
        "",
        "Folder with the files `access_key_id` and `secret_access_key` (Google:"
        " `service_account.json`; Azure: `account_name`, `account_key`); empty: the environment's"
        " or the machine's.",
        dynamic=True,
    )
    ca_file: str = setting("", "Certificates to trust besides the system's.", dynamic=True)
    bytes_a_second: int = setting(
        50 << 20,
        "How fast a member reads its log for a backup; 0: as fast as it can.",
        low=0,
        high=1 << 40,
        dynamic=True,
    )

    def __post_init__(self) -> None:
        check(self)
