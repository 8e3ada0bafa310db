"""What may become of the files of a broker that does not run: each damage is done to its folder.

Every function takes the data folder and the randomness, and says what it did; where there is
nothing to damage it raises NothingThereError.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    Damage = Callable[[Path, random.Random], str]

_FLIPPED_BITS_MAX = 6
_NOISE_BYTES_MAX = 4096
_ZEROED_BYTES_MAX = 512 << 10
_NOISE_UNITS_MAX = 200
_COPIED_PART = 0.5
_LOG_UNIT_BYTES = 64
_QUEUE_UNIT_BYTES = 20
_POSITION_UNIT_BYTES = 12


class NothingThereError(Exception):
    """There is nothing of the kind that was to be damaged."""


def _segments(data: Path) -> list[Path]:
    """Return the files of the log that hold something: one made ahead is all zeros."""
    return [path for path in sorted((data / "commitlog").iterdir()) if _written(path)]


def _written(path: Path) -> int:
    """Return how many bytes of a file come before its unwritten rest."""
    return len(path.read_bytes().rstrip(b"\0"))


def _newest(data: Path, _: random.Random) -> Path:
    return _segments(data)[-1]


def _oldest(data: Path, _: random.Random) -> Path:
    return _segments(data)[0]


def _middle(data: Path, rng: random.Random) -> Path:
    found = _segments(data)
    return rng.choice(found[1:-1] or found)


def _any_segment(data: Path, rng: random.Random) -> Path:
    return rng.choice(_segments(data))


def _any_below(*names: str) -> Callable[[Path, random.Random], Path]:
    """Any file below some of the folders, or one of these files."""

    def choose(data: Path, rng: random.Random) -> Path:
        roots = [data / name for name in names]
        found = [each for root in roots for each in root.rglob("*") if each.is_file()]
        found += [root for root in roots if root.is_file()]
        if not found:
            raise NothingThereError(f"no file in {', '.join(names)}")
        return rng.choice(sorted(found))

    return choose


def _existing(path: Path, data: Path) -> Path:
    if not path.exists():
        raise NothingThereError(f"no {path.relative_to(data)}")
    return path


def _remove(choose: Callable[[Path, random.Random], Path], data: Path, rng: random.Random) -> str:
    path = _existing(choose(data, rng), data)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return f"{path.relative_to(data)} removed"


def _halve(choose: Callable[[Path, random.Random], Path], data: Path, rng: random.Random) -> str:
    """Half of what is written is cut off."""
    path = choose(data, rng)
    size = _written(path) // 2
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path.relative_to(data)} cut at byte {size}"


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _zero_tail(data: Path, rng: random.Random) -> str:
    """The last writes never reached the disk."""
    path = _newest(data, rng)
    end = _written(path)
    size = rng.randint(1, min(end, _ZEROED_BYTES_MAX))
    _overwrite(path, end - size, bytes(size))
    return f"{path.relative_to(data)}: its last {size} bytes before byte {end} are zeros"


def _zero_part(
    choose: Callable[[Path, random.Random], Path], data: Path, rng: random.Random
) -> str:
    path = choose(data, rng)
    size = rng.randint(1, min(_written(path), _ZEROED_BYTES_MAX))
    at = rng.randrange(_written(path) - size + 1)
    _overwrite(path, at, bytes(size))
    return f"{path.relative_to(data)}: bytes {at} to {at + size} are zeros"


def _flip_bits(data: Path, rng: random.Random) -> str:
    told = []
    for _ in range(rng.randint(1, _FLIPPED_BITS_MAX)):
        path = _any_segment(data, rng)
        at = rng.randrange(_written(path))
        with path.open("rb") as file:
            file.seek(at)
            byte = file.read(1)[0]
        _overwrite(path, at, bytes([byte ^ 1 << rng.randrange(8)]))
        told.append(f"{path.relative_to(data)} at byte {at}")
    return f"bits changed: {', '.join(told)}"


def _garble(choose: Callable[[Path, random.Random], Path], data: Path, rng: random.Random) -> str:
    """Noise somewhere in a file."""
    path = _existing(choose(data, rng), data)
    at = rng.randrange(max(1, path.stat().st_size))
    size = rng.randint(1, max(1, min(_NOISE_BYTES_MAX, path.stat().st_size - at)))
    _overwrite(path, at, rng.randbytes(size))
    return f"{path.relative_to(data)}: bytes {at} to {at + size} are noise"


def _append(
    choose: Callable[[Path, random.Random], Path], unit: int, data: Path, rng: random.Random
) -> str:
    """Noise behind all that is written in a file, or a copy of what stands earlier in it.

    `unit`: size of the file's elements, none of which is touched.
    """
    path = _existing(choose(data, rng), data)
    at = -(-_written(path) // unit) * unit
    size = rng.randint(1, _NOISE_UNITS_MAX) * unit + rng.choice([0, rng.randrange(unit)])
    if at and rng.random() < _COPIED_PART:
        start = rng.randrange(max(1, at - size)) // unit * unit
        noise, what = path.read_bytes()[start : min(start + size, at)], f"a copy of byte {start} on"
    else:
        noise, what = rng.randbytes(size), "noise"
    _overwrite(path, at, noise)
    return f"{path.relative_to(data)}: bytes {at} to {at + len(noise)}, behind its end, are {what}"


def _made_ahead(data: Path, rng: random.Random) -> Path:
    """Return the file that is begun next, where there is one."""
    found = [path for path in sorted((data / "commitlog").iterdir()) if not _written(path)]
    return found[0] if found else _newest(data, rng)


def _lose_folder(data: Path, _: random.Random) -> str:
    shutil.rmtree(data)
    return "the folder is gone"


DAMAGES: dict[str, Damage] = {
    "remove_newest_segment": partial(_remove, _newest),
    "remove_oldest_segment": partial(_remove, _oldest),
    "remove_middle_segment": partial(_remove, _middle),
    "halve_newest_segment": partial(_halve, _newest),
    "halve_middle_segment": partial(_halve, _middle),
    "zero_tail": _zero_tail,
    "zero_part": partial(_zero_part, _any_segment),
    "flip_bits": _flip_bits,
    "garble_segment": partial(_garble, _any_segment),
    "garble_queue": partial(_garble, _any_below("consumequeue")),
    "garble_positions": partial(_garble, _any_below("consumequeue_v")),
    "garble_keys": partial(_garble, _any_below("index")),
    "garble_metaq": partial(_garble, _any_below("metaq")),
    "remove_queues": partial(_remove, lambda data, _: data / "consumequeue"),
    "remove_metaq": partial(_remove, lambda data, _: data / "metaq"),
    "remove_queue_file": partial(_remove, _any_below("consumequeue", "consumequeue_v")),
    "noise_behind_log": partial(_append, _newest, _LOG_UNIT_BYTES),
    "noise_behind_old_segment": partial(_append, _middle, _LOG_UNIT_BYTES),
    "noise_in_next_segment": partial(_append, _made_ahead, _LOG_UNIT_BYTES),
    "noise_behind_queue": partial(_append, _any_below("consumequeue"), _QUEUE_UNIT_BYTES),
    "noise_behind_positions": partial(_append, _any_below("consumequeue_v"), _POSITION_UNIT_BYTES),
    "noise_behind_keys": partial(_append, _any_below("index"), _QUEUE_UNIT_BYTES),
    "noise_behind_metaq": partial(_append, _any_below("metaq"), 1),
    "noise_behind_small_file": partial(
        _append, _any_below("config", "checkpoint", "epochFileCheckpoint"), 1
    ),
    "garble_epochs": partial(_garble, lambda data, _: data / "epochFileCheckpoint"),
    "remove_epochs": partial(_remove, lambda data, _: data / "epochFileCheckpoint"),
    "garble_checkpoint": partial(_garble, lambda data, _: data / "checkpoint"),
    "remove_checkpoint": partial(_remove, lambda data, _: data / "checkpoint"),
    "garble_metadata": partial(_garble, lambda data, _: data / "config" / "metadata.json"),
    "remove_metadata": partial(_remove, lambda data, _: data / "config" / "metadata.json"),
    "remove_config": partial(_remove, lambda data, _: data / "config"),
    "remove_identity": partial(_remove, lambda data, _: data / "uuid"),
    "remove_log": partial(_remove, lambda data, _: data / "commitlog"),
    "lose_folder": _lose_folder,
}
