"""Guard of the maps: what ARCHITECTURE and CONTRIBUTING say is somewhere is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
_PATH = re.compile(r"`([\w.-]+(?:/[\w.*-]*)*)`")
_ENDINGS = (".py", ".md", ".json", ".yaml", ".html", ".toml", ".tsv", "/")


def tracked() -> frozenset[str]:
    """Every file that git tracks, and every folder above one."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    files = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    folders = {str(above) for name in files for above in PurePosixPath(name).parents}
    return frozenset(files) | folders


THERE = tracked()


def places(name: str, there: frozenset[str], beside: set[str]) -> set[str]:
    """What a name of a row may mean: a path's end, a module, or a file beside one named before."""
    if "/" not in name:
        near = {f"{folder}/{name}" for folder in beside} | {name}
        return near & there
    wanted = name.rstrip("/")
    ends = {wanted, f"{wanted}.py"}
    if "*" in name:
        return {path for path in there if PurePosixPath(path).match(name)}
    return {path for path in there if path in ends or path.endswith(tuple(f"/{e}" for e in ends))}


def missing(row: str, there: frozenset[str]) -> list[str]:
    """Return the paths of a table's row that lead nowhere."""
    beside: set[str] = set()
    lost = []
    for name in _PATH.findall(row):
        if "/" not in name and not name.endswith(_ENDINGS):
            continue
        found = places(name, there, beside)
        if not found:
            lost.append(name)
        beside |= {str(PurePosixPath(path).parent) for path in found}
        beside |= {path for path in found if not PurePosixPath(path).suffix}
    return lost


def rows(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_every_place_is_there(page: str) -> None:
    assert {row: lost for row in rows(page) if (lost := missing(row, THERE))} == {}


def test_a_place_that_moved_is_found() -> None:
    there = frozenset({"a/src/part", "a/src/part/one.py", "a/src/part/two.py", "b/three.py"})
    assert missing("| it | `part/one.py`, `two.py` |", there) == []
    assert missing("| it | `part/` |", there) == []
    assert missing("| it | `part/none.py` |", there) == ["part/none.py"]
    assert missing("| it | `part/one.py`, `three.py` |", there) == ["three.py"]
    assert missing("| it | `part/t*.py`, `part/x*.py` |", there) == ["part/x*.py"]
