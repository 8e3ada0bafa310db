"""The product's version, and one after it that differs from it in what can be seen."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_testing.clusters import former_version

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parents[3]
FORMER: Final = former_version.FORMER
NEXT_START: Final = "broker_of_the_next_version_started"
"""What brokers of the next version say at their start."""
NEXT_TRIES: Final = 601
"""How often pods that the next operator makes may fail to start."""


def current() -> str:
    """Return the version of the product."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def following() -> str:
    """Return the version after it, which the suite makes of it."""
    major, minor, patch = current().split(".")
    return f"{major}.{minor}.{int(patch) + 1}"


_CHANGES: Final = {
    "broker": ('"broker_started', f'"{NEXT_START}'),
    "operator": ("STARTUP_TRIES: Final = 600", f"STARTUP_TRIES: Final = {NEXT_TRIES}"),
}
"""What differs in the next version besides its number: what stood there, and what does."""


def former_is_there() -> None:
    """FormerVersionMissingError, unless the clone has what the version before is made of."""
    with tempfile.TemporaryDirectory() as folder:
        former_version.extract(Path(folder), "pyproject.toml")


def write_former(folder: Path) -> None:
    """Write what the broker of the version before is built from."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    former_version.extract(folder)


def write_next(part: str, patterns: Iterable[str], folder: Path) -> None:
    """Write what a part of the product is built from, as it is in the next version."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        # With their times, by which layers that did not change are known.
        shutil.copy2(path, target)
    version = (f'\nversion = "{current()}"', f'\nversion = "{following()}"')
    _replace([folder / "pyproject.toml"], *version)
    _replace((folder / part).rglob("*.py"), *_CHANGES[part])


def _replace(files: Iterable[Path], before: str, after: str) -> None:
    """Replace a text that one of these files has, once."""
    texts = {path: path.read_text() for path in files}
    has = [path for path, text in texts.items() for _ in range(text.count(before))]
    assert len(has) == 1, f"{before!r} is not there once, but in {list(map(str, has))}"
    has[0].write_text(texts[has[0]].replace(before, after))
