"""Opens a bucket with the library, which is loaded here and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from imago_objects.errors import BucketRefusedError
from imago_objects.objects import Objects

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Config, S3Credential

    from imago_objects.config import ObjectsConfig

_CREDENTIALS_S = 300
"""Files of credentials are read again so often: whoever changes them need not start anything."""


def open_objects(config: ObjectsConfig) -> Objects:
    """Open a bucket; nothing is connected yet. BucketRefusedError: what is said of it is wrong."""
    try:
        from obstore import store as library  # noqa: PLC0415 - the one place that loads it
        from obstore.exceptions import BaseError  # noqa: PLC0415
    except ImportError as error:
        raise BucketRefusedError(
            config.url, "obstore is not installed", "pip install 'imago-mq[objects]'"
        ) from error
    parts = urlsplit(config.url)
    try:
        if parts.scheme == "memory":
            return Objects(config.url, library.MemoryStore())
        if parts.scheme == "file":
            return Objects(
                config.url, library.LocalStore(parts.path, mkdir=True), folder=Path(parts.path)
            )
        return Objects(config.url, _remote(config, parts.scheme))
    except (BaseError, ValueError, OSError) as error:
        what = str(error).partition("\n")[0][:200]
        raise BucketRefusedError(config.url, what, "check what is said of the bucket") from error


def _remote(config: ObjectsConfig, scheme: str) -> ObjectStore:
    from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415 - loaded already

    client: ClientConfig = {
        "timeout": timedelta(seconds=config.timeout_s),
        "connect_timeout": timedelta(seconds=min(config.timeout_s, 5)),
        "allow_http": config.endpoint.startswith("http://"),
    }
    if config.ca_file:
        client["root_certificate"] = _text(config, Path(config.ca_file))
    retry: RetryConfig = {
        "max_retries": config.attempts - 1,
        "retry_timeout": timedelta(seconds=config.timeout_s * config.attempts),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
    }
    given: dict[str, Any] = {"client_options": client, "retry_config": retry}
    if scheme == "s3":
        given |= _credentials_of_s3(config)
        return S3Store.from_url(config.url, config=_s3(config), **given)
    if scheme == "gs":
        return GCSStore.from_url(config.url, **given, **_of_google(config))
    return AzureStore.from_url(config.url, **given, **_of_azure(config))


def _s3(config: ObjectsConfig) -> S3Config:
    settings: S3Config = {
        "checksum_algorithm": "SHA256",
        "virtual_hosted_style_request": not config.path_style,
    }
    if config.endpoint:
        settings["endpoint"] = config.endpoint
    if config.region:
        settings["region"] = config.region
    return settings


def _credentials_of_s3(config: ObjectsConfig) -> dict[str, Any]:
    if not config.credentials_folder:
        return {}
    folder = Path(config.credentials_folder)

    def read() -> S3Credential:
        token = folder / "session_token"
        return {
            "access_key_id": _text(config, folder / "access_key_id"),
            "secret_access_key": _text(config, folder / "secret_access_key"),
            "token": _text(config, token) if token.exists() else None,
            "expires_at": datetime.now(UTC) + timedelta(seconds=_CREDENTIALS_S),
        }

    read()  # what is missing is said now
    return {"credential_provider": read}


def _of_google(config: ObjectsConfig) -> dict[str, Any]:
    settings = {"base_url": config.endpoint} if config.endpoint else {}
    if config.credentials_folder:
        path = Path(config.credentials_folder) / "service_account.json"
        settings["service_account_key"] = _text(config, path)
    return settings


def _of_azure(config: ObjectsConfig) -> dict[str, Any]:
    settings = {"endpoint": config.endpoint} if config.endpoint else {}
    if config.credentials_folder:
        folder = Path(config.credentials_folder)
        settings["account_name"] = _text(config, folder / "account_name")
        settings["account_key"] = _text(config, folder / "account_key")
    return settings


def _text(config: ObjectsConfig, path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise BucketRefusedError(config.url, f"{path}: {said}", "is the file there?") from error
