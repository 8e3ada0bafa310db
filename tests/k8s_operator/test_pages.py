"""Pages for people name things that are there: tests, files, commands, alerts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("operator.md", "install.md", "upgrade.md", "runbook.md")
ON_CALL = (
    "puts",
    "disks",
    "clients",
    "logs",
    "addresses",
    "pipelines",
    "report",
    "fence",
    "unfence",
)
COMMANDS = ("status", "explain", "plan", "handover", "approve", "pause", "resume", "restart")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def named_tests() -> list[str]:
    return sorted(set(re.findall(r"`((?:tests|e2e)/[^` ]+)`", page("operator.md"))))


@pytest.mark.parametrize("named", named_tests())
def test_tests_that_are_named_are_there(named: str) -> None:
    file, _, function = named.partition("::")
    path = ROOT / file
    assert path.exists(), file
    if function:
        assert re.search(rf"^(async def|def|class) {function}\b", path.read_text(), re.MULTILINE)


def test_all_points_are_answered() -> None:
    numbers = re.findall(
        r"^\| (\d+) \| [^|]+ \| \S", page("operator.md").split("## Twenty")[1], re.MULTILINE
    )
    assert numbers == [str(n) for n in range(1, 26)]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", page(name)):
        assert not target or (ROOT / "docs" / target).exists(), target


@pytest.mark.parametrize("name", PAGES)
def test_links_into_pages_find_their_title(name: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", page(name)):
        text = page(target or name)
        titles = [line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")]
        slugs = {re.sub(r"[^a-z0-9 -]", "", title).replace(" ", "-") for title in titles}
        assert anchor in slugs, (target, anchor)


@pytest.mark.parametrize("name", PAGES)
def test_commands_exist(name: str) -> None:
    said = set(re.findall(r"kubectl imago ([a-z]+)", page(name)))
    assert said <= {*COMMANDS, *ON_CALL, "topics", "groups", "user"}


@pytest.mark.parametrize("name", PAGES)
def test_files_that_are_named_are_there(name: str) -> None:
    found = re.findall(r"(?<![/\w])(?:manifests|charts)/[A-Za-z0-9_./-]+[A-Za-z0-9]", page(name))
    assert all((ROOT / file).exists() for file in found), found
