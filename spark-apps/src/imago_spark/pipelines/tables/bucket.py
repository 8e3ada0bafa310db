"""Where a table lies that is no folder: a bucket of an S3 service."""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_spark.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow import fs

SCHEME: Final = "s3://"
REGION: Final = "us-east-1"
_PROFILE: Final = "default"
_ID, _SECRET, _TOKEN = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeBucket:
    """An S3 service, and who asks it. A table's path in it begins with the bucket's name."""

    endpoint: str | None = None
    """Its URL; None: Amazon's."""
    region: str = REGION
    credentials_file: Path | None = None
    """As Amazon's tools have it, profile `default`; None: where these look, environment first."""

    def files(self) -> fs.FileSystem:
        """Return the way of PyArrow to it. OptionError: the file with the credentials."""
        from pyarrow import fs

        who = self._credentials()
        scheme, _, place = (self.endpoint or "").partition("://")
        return fs.S3FileSystem(
            access_key=who.get(_ID),
            secret_key=who.get(_SECRET),
            session_token=who.get(_TOKEN),
            region=self.region,
            scheme=scheme or None,
            endpoint_override=place or None,
        )

    def delta_options(self) -> dict[str, str]:
        """Return the same for a Delta log."""
        found = {"AWS_REGION": self.region, "aws_conditional_put": "etag"}
        if self.endpoint is not None:
            found |= {"AWS_ENDPOINT_URL": self.endpoint}
            found |= {"AWS_ALLOW_HTTP": str(self.endpoint.startswith("http://")).lower()}
        return found | {name.upper(): text for name, text in self._credentials().items()}

    def _credentials(self) -> dict[str, str]:
        if self.credentials_file is None:
            return {}
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(self.credentials_file.read_text(encoding="utf-8"))
            profile = parser[_PROFILE]
            found = {name: profile[name] for name in (_ID, _SECRET)}
        except (OSError, KeyError, ValueError, configparser.Error) as error:
            # Nothing of the file itself: it is secret.
            raise OptionError(
                f"config.s3CredentialsFile: {self.credentials_file}: {type(error).__name__}: needs"
                f" a profile [{_PROFILE}] with {_ID} and {_SECRET}"
            ) from None
        return found | ({_TOKEN: profile[_TOKEN]} if _TOKEN in profile else {})


def files_of(bucket: LakeBucket | None) -> fs.FileSystem:
    """Return the way to files of a bucket, or of this machine."""
    from pyarrow import fs

    return fs.LocalFileSystem() if bucket is None else bucket.files()
