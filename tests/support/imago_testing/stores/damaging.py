"""Damage to the files of a stopped member, of every kind: one call harms one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_testing.stores.in_memory import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from imago_testing.stores.vfs import MemoryVfs

RUN_BYTES_MAX = 1500
FLIPS_MAX = 3


def log_files(vfs: MemoryVfs) -> list[Path]:
    """Return the files of a member's log, the oldest first."""
    return [path for path in vfs.files() if path.parent == DATA / "commitlog"]


def harm_log(vfs: MemoryVfs, rng: Random) -> str:
    """Harm a file of the log: the newest one, with what was written last, more often."""
    files = log_files(vfs)
    written = [path for path in files if any(vfs.content(path))]
    return _harm(vfs, rng, written or files, favourite=-1)


def lose_log(vfs: MemoryVfs, _: Random) -> str:
    """Remove all files of the log."""
    for path in log_files(vfs):
        vfs.unlink(path)
    return "all of the log removed"


def harm_view(vfs: MemoryVfs, rng: Random) -> str:
    """Harm a file that can be made again from the log."""
    folders = ("consumequeue", "consumequeue_v", "index", "metaq")
    kept = rng.choice(folders)
    return _harm(vfs, rng, [path for path in vfs.files() if DATA / kept in path.parents])


def harm_note(vfs: MemoryVfs, rng: Random) -> str:
    """Harm one of the files that say how things stand."""
    names = (
        "abort",
        "checkpoint",
        "config/damage",
        "config/metadata.json",
        "config/views",
        "epochFileCheckpoint",
    )
    return _harm(vfs, rng, [path for path in vfs.files() if path in [DATA / n for n in names]])


def _harm(vfs: MemoryVfs, rng: Random, files: Sequence[Path], favourite: int | None = None) -> str:
    if not files:
        return "nothing"
    chosen = rng.choice(files)
    if favourite is not None and rng.random() < 0.5:
        chosen = files[favourite]
    way = rng.choice(_WAYS)
    return f"{chosen.relative_to(DATA)}: {way(vfs, rng, chosen)}"


def _remove(vfs: MemoryVfs, _: Random, path: Path) -> str:
    vfs.unlink(path)
    return "removed"


def _cut(vfs: MemoryVfs, rng: Random, path: Path) -> str:
    content = vfs.content(path)
    size = rng.randrange(len(content.rstrip(b"\0")) + 1)
    vfs.put(path, content[:size])
    return f"cut to {size}"


def _fill(byte: Callable[[Random], int], name: str) -> Callable[[MemoryVfs, Random, Path], str]:
    def fill(vfs: MemoryVfs, rng: Random, path: Path) -> str:
        content = bytearray(vfs.content(path))
        start = rng.randrange(len(content.rstrip(b"\0")) + 1)
        end = min(len(content), start + rng.randrange(1, RUN_BYTES_MAX))
        content[start:end] = bytes(byte(rng) for _ in range(start, end))
        vfs.put(path, bytes(content))
        return f"{name} from {start} to {end}"

    return fill


def _flip(vfs: MemoryVfs, rng: Random, path: Path) -> str:
    size = len(vfs.content(path).rstrip(b"\0"))
    if not size:
        return "empty already"
    places = [rng.randrange(size) for _ in range(rng.randrange(1, FLIPS_MAX + 1))]
    for place in places:
        vfs.flip_bit(path, place, rng.randrange(8))
    return f"bits flipped at {places}"


_WAYS: Sequence[Callable[[MemoryVfs, Random, Path], str]] = (
    _remove,
    _cut,
    _fill(lambda _: 0, "zeros"),
    _fill(lambda rng: rng.randrange(256), "noise"),
    _flip,
)
