"""Guards of the repository's tree: what must be there, and what must never be."""

from __future__ import annotations

import ast
import operator
import re
import subprocess
import sys
from pathlib import Path

from imago_testing.small_limits import KEPT, SMALL, constants

ROOT = Path(__file__).parents[1]
CONTAINERS = ["broker", "operator", "spark-apps"]
SMALL_ENOUGH = 16
"""A limit below it is met by tests as it is."""
PATIENCE_SECONDS = 50
"""A test that waits for what must happen waits so long at least: the machine may be busy."""


def tracked() -> list[str]:
    """Files that git tracks, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]


def test_operator_is_the_standard_library_module() -> None:
    assert operator.add(1, 1) == 2
    assert not Path(str(operator.__file__)).is_relative_to(ROOT / "operator")


def test_operator_folder_on_the_path_does_not_shadow_the_standard_library() -> None:
    code = "import collections, operator; print(operator.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert not Path(found.stdout.strip()).is_relative_to(ROOT)


def test_containers_are_neither_packages_nor_places_for_tests() -> None:
    patterns = ["{}/__init__.py", "{}/**/conftest.py", "{}/**/test_*.py"]
    strays = [
        path for folder in CONTAINERS for p in patterns for path in ROOT.glob(p.format(folder))
    ]
    assert strays == []


def test_no_module_is_named_like_the_standard_library() -> None:
    sources = [ROOT / c / "src" for c in CONTAINERS]
    tops = {path.name for source in sources if source.exists() for path in source.iterdir()}
    assert not tops & set(sys.stdlib_module_names)
    assert all(name.startswith(("imago_", "pyspark_imago")) for name in tops), tops


def test_modules_stay_readable() -> None:
    """A module is about one idea: 400 lines, with a little grace."""
    long = {
        name: lines
        for name in tracked()
        if name.endswith(".py") and (lines := len((ROOT / name).read_text().splitlines())) > 420
    }
    assert long == {}


def impatient_waits(name: str) -> list[str]:
    """Return where a module calls `wait_until` with fewer seconds than a busy machine may need."""
    return [
        f"{name}:{node.lineno}"
        for node in ast.walk(ast.parse((ROOT / name).read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "wait_until"
        for given in node.keywords
        if given.arg == "seconds_max"
        and isinstance(given.value, ast.Constant)
        and isinstance(given.value.value, int | float)
        and given.value.value < PATIENCE_SECONDS
    ]


def test_waits_are_patient() -> None:
    modules = [name for name in tracked() if name.startswith("tests/") and name.endswith(".py")]
    waiting = [name for name in modules if "wait_until(" in (ROOT / name).read_text()]
    assert len(waiting) > 50
    assert [wait for name in waiting for wait in impatient_waits(name)] == []


def test_nothing_speaks_of_a_machine_or_a_registry() -> None:
    forbidden = re.compile(
        r"(?<!\w)/root/|/work/(?:main|shared|steering)|pypi\.org|pythonhosted|maven\.org|npmjs|"
        r"proxy\.golang|crates\.io|deb\.debian"
    )
    own = "tests/test_layout.py"
    found = [
        f"{name}: {match.group()}"
        for name in tracked()
        if name != own
        and not name.endswith((".png", ".bin", ".so"))
        and (match := forbidden.search((ROOT / name).read_text(errors="replace")))
    ]
    assert found == []


def test_requirements_are_exact_and_hashed() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        pins = [line for line in path.read_text().splitlines() if re.match(r"[a-z0-9]", line)]
        assert pins
        assert all("==" in line and line.endswith("\\") for line in pins), path
        assert "--hash=sha256:" in path.read_text()


def test_every_number_is_made_small_or_said_to_stay() -> None:
    """A new constant of the store or the replication, by which something is read, sent or kept at
    once: give it a small value in `imago_testing/small_limits.py`, or say there why it stays."""
    found = {(module, name) for module, name, value in constants() if abs(value) >= SMALL_ENOUGH}
    named = {(module, name) for module, names in SMALL.items() for name in names}
    kept = {(module, name) for module, names in KEPT.items() for name in names}
    known = {(module, name) for module, name, _ in constants()}
    assert found - named - kept == set()
    assert kept - known == set(), "gone: take them out of KEPT"
    assert named - known == set(), "gone, or not assigned alone: the small limits change nothing"
    assert named & kept == set()
