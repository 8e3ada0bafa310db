"""Where backups are, as commands are told, without a cluster."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

from imago_backup import shelf
from imago_backup.errors import BackupDamagedError, BackupError, BackupUnknownError
from imago_backup.errors import RestoreRefusedError as RefusedError
from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.line.declared import Option
from imago_cli.output import counted, print_table
from imago_cli.times import second
from imago_objects import BucketRefusedError, Objects, ObjectsConfig, ObjectsError, open_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping

    from imago_backup.format import BackupManifest

_Answer = TypeVar("_Answer")

From = Annotated[
    str,
    Option(
        "--from",
        envvar="IMAGO_BACKUP_URL",
        help="Where the backups are: s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER; what"
        " brokers have as backup.url.",
    ),
]
OptionalFrom = Annotated[
    str | None,
    Option("--from", help="Look there, s3://BUCKET/PREFIX or file:///FOLDER, and ask no broker."),
]
Endpoint = Annotated[
    str,
    Option(
        envvar="IMAGO_BACKUP_ENDPOINT", help="Address of a service that is not the cloud's own."
    ),
]
Region = Annotated[str, Option(envvar="IMAGO_BACKUP_REGION", help="Region of the bucket.")]
Credentials = Annotated[
    Path | None,
    Option(
        envvar="IMAGO_BACKUP_CREDENTIALS",
        help="Folder with the files access_key_id and secret_access_key; by default the"
        " environment's or the machine's credentials.",
    ),
]
CaFile = Annotated[
    Path | None,
    Option(envvar="IMAGO_BACKUP_CA", help="Certificates to trust besides the system's."),
]
COLUMNS = ("backup", "cluster", "started", "shards", "messages until", "bytes", "damaged")

_LIBRARY_SECONDS = 0.05
"""The library's threads let go of what they were told: one that does so while the interpreter ends
aborts the process, a few times in a hundred."""


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A bucket and the way to it."""

    url: str
    endpoint: str = ""
    region: str = ""
    credentials: Path | None = None
    ca_file: Path | None = None

    def open(self) -> Objects:
        """Open it; nothing is connected yet. CommandUsageError: a folder that is not there."""
        config = ObjectsConfig(
            self.url,
            endpoint=self.endpoint,
            region=self.region,
            credentials_folder=str(self.credentials or ""),
            ca_file=str(self.ca_file or ""),
        )
        parts = urlsplit(self.url)
        if parts.scheme == "file" and not Path(parts.path).is_dir():
            raise CommandUsageError(
                f"{self.url}: there is no such folder",
                cure="name what brokers have as backup.url",
            )
        return open_objects(config)


def run(place: BucketPlace, work: Callable[[Objects], Coroutine[Any, Any, _Answer]]) -> _Answer:
    """Do something with a bucket, and say in a sentence what went wrong."""

    async def opened() -> _Answer:
        return await work(place.open())

    with told(f"imago backup list --from {place.url}"):
        try:
            return asyncio.run(opened())
        finally:
            time.sleep(_LIBRARY_SECONDS)


@contextmanager
def told(lists: str) -> Iterator[None]:
    """Turn what a backup or a bucket does not allow into a command's error.

    `lists` names the backups that there are.
    """
    try:
        yield
    except BackupUnknownError as error:
        raise CommandError(str(error), cure=f"see `{lists}`") from error
    except RefusedError as error:
        raise CommandUsageError(str(error), cure=error.cure) from error
    except BackupDamagedError as error:
        raise CommandError(str(error), cure=error.cure, code=Exit.DATA) from error
    except BackupError as error:
        raise CommandError(str(error), cure=error.cure) from error
    except BucketRefusedError as error:
        raise CommandUsageError(f"{error.bucket}: {error.what}", cure=error.cure) from error
    except ObjectsError as error:
        raise CommandError(f"{error.bucket}: {error.what}", cure=error.cure) from error


async def manifest(bucket: Objects, name: str) -> BackupManifest:
    """Return a backup; the name `latest` stands for the newest that is complete."""
    if name != "latest":
        return await shelf.manifest_of(bucket, name)
    found = await shelf.complete(bucket)
    if not found:
        raise BackupUnknownError("there is no complete backup", "see `imago backup list`")
    return found[-1]


def print_backups(items: Iterable[Mapping[str, Any]], incomplete: Iterable[str]) -> None:
    """Print a row for each backup, in the form of the admin interface."""
    rows: list[tuple[object, ...]] = [
        (
            each["backup"],
            each["cluster"],
            second(each["startedAt"]),
            len(each["shards"]),
            second(min((shard["cutAt"] for shard in each["shards"].values()), default=0)),
            each["size"],
            sum(shard["damaged"] for shard in each["shards"].values()) or "",
        )
        for each in items
    ]
    rows += [(name, "", "not complete", "", "", "", "") for name in incomplete]
    print_table(counted(len(rows), "backup"), COLUMNS, rows)
