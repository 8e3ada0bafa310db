"""What `imago backup` says of a bucket or folder that it is to read, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_cli.backups.buckets import BucketPlace, manifest, run
from imago_cli.exits import CommandError, CommandUsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_that_is_not_there_is_said_and_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    with pytest.raises(CommandUsageError, match="there is no such folder"):
        run(BucketPlace(f"file://{folder}"), lambda bucket: manifest(bucket, "monday"))
    assert not folder.exists()


@pytest.mark.parametrize("name", ["monday", "latest"])
def test_a_backup_that_is_not_there_is_looked_for_in_the_same_place(
    tmp_path: Path, name: str
) -> None:
    url = f"file://{tmp_path}"
    with pytest.raises(CommandError) as caught:
        run(BucketPlace(url), lambda bucket: manifest(bucket, name))
    assert caught.value.cure == f"see `imago backup list --from {url}`"
