"""Guards of the pages: readable lines, links that lead somewhere, one version everywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from imago_tools import rocketmq_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
WIDTH = 120
_FENCE = re.compile(r"^ *(```|~~~)")
_LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def pages() -> list[str]:
    """Every Markdown page that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [name for name in listed.stdout.split() if (ROOT / name).exists()]


PAGES = pages()


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page, with their numbers, but for code and tables."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ")):
            yield number, line


def anchors(path: Path) -> set[str]:
    """Return what a link may name behind `#`, as hosts of repositories make it from headings."""
    found: set[str] = set()
    text = "\n".join(line for _, line in prose(path.read_text(encoding="utf-8")))
    for heading in _HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def test_prose_is_short_and_long_lines_are_found() -> None:
    long = {
        f"{name}:{number}"
        for name in PAGES
        for number, line in prose((ROOT / name).read_text(encoding="utf-8"))
        if len(line) > WIDTH
    }
    assert long == set()
    page = "a\n" + "x" * 121 + "\n```\n" + "x" * 121 + "\n```\n| " + "x" * 121 + "\n"
    assert [number for number, line in prose(page) if len(line) > WIDTH] == [2]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    path = ROOT / name
    broken = []
    for target in _LINK.findall(path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", file):
            continue
        place = (path.parent / file).resolve() if file else path
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(target)
    assert broken == []


def test_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((ROOT / "charts/imago/Chart.yaml").read_text())
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    said = {
        "pyproject.toml": project["version"],
        "charts/imago/Chart.yaml version": chart["version"],
        "charts/imago/Chart.yaml appVersion": chart["appVersion"],
        "CHANGELOG.md": newest[1],
    }
    for name in ("manifests/install.yaml", "manifests/spark/config.yaml"):
        text = (ROOT / name).read_text()
        found = set(re.findall(r"(?:app\.kubernetes\.io/version: |imago/[a-z-]+:)([\d.]+)", text))
        said |= {f"{name} {version}": version for version in found}
    assert set(said.values()) == {project["version"]}, said


def test_nobody_is_told_to_install_a_stranger() -> None:
    """On the package index `imago` is another project's program."""
    wrong = re.compile(r"pip install (?:-\S+ )*['\"]?imago(?:[\['\"\s]|$)", re.MULTILINE)
    found = [name for name in PAGES if wrong.search((ROOT / name).read_text(encoding="utf-8"))]
    assert found == []
    assert wrong.search("pip install 'imago[spark]'")
    assert not wrong.search("pip install 'imago-mq[spark]'")


def test_tables_are_made_from_what_the_suite_runs_and_measured() -> None:
    """In a process of its own, since it collects tests: the clients' by their marks."""
    done = subprocess.run(
        [sys.executable, "-m", "imago_tools.made", "--check"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_page_of_request_codes_is_made_from_the_tables() -> None:
    page = (ROOT / "docs" / "rocketmq-codes.md").read_text(encoding="utf-8")
    assert page == rocketmq_codes.page(), "run `make docs`"


@pytest.mark.parametrize("folder", ["docs", "docs/adr", "docs/concepts", "docs/formats"])
def test_every_page_is_listed(folder: str) -> None:
    index = ROOT / folder / "README.md"
    index = index if index.exists() else ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text())}
    pages_ = {path for path in (ROOT / folder).glob("*.md") if path.name != "README.md"}
    assert {path.name for path in pages_ - listed} == set()


def test_hosted_ci_runs_what_everybody_runs() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text())["jobs"]
    commands = [step.get("run") for job in jobs.values() for step in job["steps"]]
    assert ".ci/run" in commands
