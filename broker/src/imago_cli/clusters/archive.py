"""The file in which a report is handed on: a packed folder, for its owner alone."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

from imago_cli.clusters.redacting import redacted
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.output import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path


def as_text(value: Any) -> str:
    """Return a value of JSON as a file has it, without what may be a secret."""
    return json.dumps(redacted(value), indent=1, sort_keys=True) + "\n"


def lacking(missing: Sequence[str]) -> str:
    """Say how much a report lacks, to stand behind its size; "": nothing."""
    return f"; {counted(len(missing), 'part')} not read, see missing.txt in it" if missing else ""


def write(
    path: Path, folder: str, files: Mapping[str, str], missing: Sequence[str], now: datetime
) -> int:
    """Write the archive; return how many files are in it. CommandError where that cannot be."""
    if missing:
        files = {**files, "missing.txt": "\n".join(missing) + "\n"}
    try:
        with path.open("xb") as out:
            path.chmod(0o600)
            with tarfile.open(fileobj=out, mode="w:gz") as archive:
                for name, text in sorted(files.items()):
                    data = text.encode()
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size, entry.mtime, entry.mode = len(data), int(now.timestamp()), 0o600
                    archive.addfile(entry, io.BytesIO(data))
    except FileExistsError as error:
        raise CommandUsageError(f"{path} exists", cure="name another with --file") from error
    except OSError as error:
        cure = "name another place with --file"
        raise CommandError(f"{path} cannot be written: {error.strerror}", cure=cure) from error
    return len(files)
