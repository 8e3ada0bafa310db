"""Secrets that stand where they must not: searched for in all that processes of tests leave.

Nobody lists the secrets. They are what files of tokens, passwords and keys hold, and the keys of
users in the logs of stores. They may stand there and nowhere else: not in what processes print,
nor in ZooKeeper's files (every node ever written), in files of state, in what `imago log dump`
shows, or in a command line, which every user of a machine can see.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson
import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SIZE_MIN: Final = 8
"""Shorter words stand in other texts by chance."""
_HOLDERS: Final = re.compile(
    r".*\.password|.*-password|(.*-)?token|.*\.key|.*-store\.pem|tools\.yml"
)
"""Names of files that hold a secret each; ZooKeeper's has a certificate, too, mqadmin's a name."""
_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)
_KEY_LINE: Final = re.compile(rb"^[A-Za-z0-9+/]{40,}={0,2}$", re.MULTILINE)
_KEPT: Final = re.compile(rb'"(?:secret":|former":\[)"([^"\\]{8,})"')
"""A user's signing key, now and before, in a record of a log."""
_LOG: Final = "commitlog"
CHUNK: Final = 1 << 22
"""Bytes that are searched at once."""
_OVERLAP: Final = 1 << 12
NOTHING: Final[Mapping[str, bytes]] = MappingProxyType({})
COMMANDS_MAX: Final = 10_000

commands: Final[list[str]] = []
"""Command lines of processes that this one started, or saw."""


def _on_event(event: str, given: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and len(commands) < COMMANDS_MAX:
        commands.append(" ".join(map(str, given[1])))


def watch_commands() -> None:
    """Note the command line of each process that is started from now on."""
    sys.addaudithook(_on_event)


def note_descendants(pid: int) -> None:
    """Note the command lines of all that a process has started, and these in turn."""
    with contextlib.suppress(psutil.Error):
        for each in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                commands.append(" ".join(each.cmdline()))
    del commands[COMMANDS_MAX:]


def secrets_in(folders: Iterable[Path]) -> dict[str, bytes]:
    """Return all secrets that are kept below some folders, by where they are."""
    found: dict[str, bytes] = {}
    for path in _files(folders):
        if _HOLDERS.fullmatch(path.name):
            text = b"".join(_written(path)).strip()
            if path.suffix in {".key", ".pem"}:
                lines = _KEY_LINE.findall(b"".join(_KEY.findall(text)))
            else:
                lines = [text]
            found |= {f"{path} {n}": line for n, line in enumerate(lines)}
        elif path.parent.name == _LOG:
            for chunk in _written(path):
                found |= {f"{path} {each.decode()}": each for each in _KEPT.findall(chunk)}
    return {name: secret for name, secret in found.items() if len(secret) >= SIZE_MIN}


def leaks(folders: Sequence[Path], shown: Mapping[str, bytes] = NOTHING) -> list[str]:
    """Return a line for each secret that stands where it must not.

    `shown`: more places than files and dumps of stores below the folders, and what stands there.
    """
    by_secret = {secret: name for name, secret in secrets_in(folders).items()}
    if not by_secret:
        return []
    any_secret = re.compile(b"|".join(map(re.escape, sorted(by_secret))))
    found: set[str] = set()
    for place, chunk in itertools.chain(shown.items(), _dumps(folders), _places(folders)):
        for each in any_secret.findall(chunk):
            found.add(f"{place} shows what only {by_secret[each]} may hold")
    return sorted(found)


def _dumps(folders: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield what `imago log dump` shows of each store that is stopped."""
    # Not before: small limits are set before the store is imported.
    from imago_log.errors import StoreError
    from imago_log.offline.check import NotADataFolderError
    from imago_log.offline.dump import dump, to_json

    for path in _stores(folders):
        try:
            for record in dump(path):
                yield f"the dump of {path}", orjson.dumps(to_json(record))
        except (NotADataFolderError, StoreError, OSError):
            continue  # what a test has broken, or still runs, has no dump


def _places(folders: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    stores = _stores(folders)
    for path in _files(folders):
        # Records, and what is made from them, are in folders of a store.
        if _HOLDERS.fullmatch(path.name) or not stores.isdisjoint(path.parents[1:]):
            continue
        for chunk in _written(path):
            yield str(path), chunk


def _stores(folders: Iterable[Path]) -> set[Path]:
    return {each.parent.parent for each in _files(folders) if each.parent.name == _LOG}


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for name, _, files in os.walk(folder):  # passes over what goes meanwhile
            for each in files:
                path = Path(name, each)
                if path.is_file() and not path.is_symlink():
                    yield path


def _written(path: Path) -> Iterator[bytes]:
    """Yield a file's content without its holes, in pieces that overlap."""
    try:
        with path.open("rb", buffering=0) as file:
            at, size = 0, path.stat().st_size
            while at < size:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
                yield os.pread(file.fileno(), min(CHUNK + _OVERLAP, end - at), at)
                at = min(at + CHUNK, end)
    except OSError:
        return  # behind the last data, or gone meanwhile
