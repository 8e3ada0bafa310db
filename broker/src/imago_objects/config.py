"""Where a bucket is and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from imago_objects.errors import BucketRefusedError

SCHEMES = ("s3", "gs", "az", "file", "memory")


@dataclass(frozen=True, slots=True)
class ObjectsConfig:
    """Where a bucket is and how it is reached; what is empty is as the library has it.

    Without a `credentials_folder` the environment's are taken (AWS_ACCESS_KEY_ID and the like),
    then those of the machine or the pod. The folder is what a mounted Secret is: `access_key_id`
    and `secret_access_key` (`session_token` if there is one) for S3, read again every few minutes;
    `service_account.json` for Google; `account_name` and `account_key` for Azure.
    """

    url: str
    """`s3://bucket/prefix`, `gs://…`, `az://account/container/prefix`, `file:///folder`, `memory://`."""
    endpoint: str = ""
    """Address of a service that is not the cloud's own: `https://minio.example:9000`."""
    region: str = ""
    credentials_folder: str = ""
    ca_file: str = ""
    """Certificates to trust besides the system's."""
    path_style: bool = True
    """`endpoint/bucket/name`, as nearly every service understands; no: `bucket.endpoint/name`."""
    timeout_s: float = 30.0
    """For one attempt of one request; a request sends or takes a part at most."""
    attempts: int = 4

    def __post_init__(self) -> None:
        """BucketRefusedError: the URL names no bucket, or what is plain is wrong."""
        parts = urlsplit(self.url)
        if parts.scheme not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise BucketRefusedError(self.url, "no such kind of bucket", f"write one of {known}")
        if parts.username or parts.password or parts.query or parts.fragment:
            shown = f"{parts.scheme}://{parts.hostname}{parts.path}"  # never what may be a password
            raise BucketRefusedError(
                shown,
                "the URL holds more than bucket and prefix",
                "put credentials into files or the environment",
            )
        if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
            raise BucketRefusedError(self.url, "names no folder", "write file:///path/of/folder")
        if parts.scheme not in ("file", "memory") and not parts.netloc:
            raise BucketRefusedError(self.url, "names no bucket", f"write {parts.scheme}://bucket")
        if self.timeout_s <= 0 or self.attempts < 1:
            raise BucketRefusedError(
                self.url, "no time to reach it", "timeout_s > 0 and attempts ≥ 1"
            )
