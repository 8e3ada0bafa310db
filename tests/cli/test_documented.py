"""Commands on the pages are there, with the options that the pages give them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli import commands
from imago_cli.kubectl.main import build as build_plugin

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "broker" / "src").rglob("*.py"), *(ROOT / "operator" / "src").rglob("*.py")]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_PROGRAM = re.compile(r"(?<![\w./-])(?<!install )(?<!upgrade )(?:kubectl )?imago (?=[a-z]|--[a-z])")
_GLOBAL = re.compile(r"^(?:--(?:user|password-file|profile) \S+ )*")
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`((?:kubectl )?imago [a-z-][^`]*)`")
_END = re.compile(r"\s(?:#|[<>|;&]|\\$| {2,})|\)\"")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[A-Za-z])\b")


def command_lines(text: str) -> Iterator[str]:
    """Yield each command of ours in blocks of a shell and between backquotes."""
    text = re.sub(r"\\\n\s*", "", text)
    for kind, block in _FENCE.findall(text):
        if kind in ("", "sh", "shell", "bash"):
            for line in block.splitlines():
                for found in _PROGRAM.finditer(line):
                    if "#" not in line[: found.start()]:
                        yield _END.split(line[found.start() :])[0]
    for span in _SPAN.findall(_FENCE.sub("", text)):
        yield _END.split(" ".join(span.split()))[0]


@cache
def tree(program: str, first: str) -> Any:
    if program == "kubectl":
        return build_plugin()
    return commands.build(first)


def problem(line: str) -> str:
    """Return what is wrong with a command; empty: it is there, with its options."""
    program = "kubectl" if line.startswith("kubectl") else "imago"
    words = _GLOBAL.sub("", line.removeprefix("kubectl ").removeprefix("imago ")).split(" ")
    if words[0].startswith("…") or words[0] in ("--install-completion", "--version"):
        return ""
    if program == "imago" and words[0] not in commands.COMMANDS:
        return f"there is no imago {words[0]}"
    at, options = tree(program, words[0]), set[str]()
    for word in words:
        options |= {name for one in at.parameters for name in (*one.words, one.off)}
        if not hasattr(at, "commands"):
            break
        names = word.split("|")
        if re.fullmatch(r"[A-Z…\[].*|…|-.*|", word):
            break
        if missing := [name for name in names if name not in at.commands]:
            return f"{line}: there is no command {missing}"
        at = at.commands[names[0]]
    options |= {name for one in at.parameters for name in (*one.words, one.off)}
    wrong = set(_OPTION.findall(re.sub(r"(['\"]).*?\1", "", line))) - options - {"--help", "-h"}
    return f"{line}: no option {sorted(wrong)}" if wrong else ""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_options_on_pages_are_there(path: Path) -> None:
    lines = command_lines(path.read_text(encoding="utf-8"))
    assert [said for line in lines if (said := problem(line))] == []


def told(text: str) -> Iterator[str]:
    """Yield each command between backquotes in the messages and docstrings of a module."""
    joined = re.sub(r"\"\s*\n\s*f?\"|\n\s*", " ", text)
    for span in _SPAN.findall(joined):
        yield _END.split(re.sub(r"\{[^}]*\}", "NAME", " ".join(span.split())))[0]


def test_commands_that_messages_name_are_there() -> None:
    lines = {line for path in SOURCES for line in told(path.read_text(encoding="utf-8"))}
    assert len(lines) > 40
    assert [said for line in sorted(lines) if (said := problem(line))] == []


def test_enough_commands_are_seen_and_wrong_ones_found() -> None:
    seen = [line for path in PAGES for line in command_lines(path.read_text(encoding="utf-8"))]
    assert len(seen) > 200
    assert sum(line.startswith("kubectl") for line in seen) > 40
    assert problem("imago topic lst") == "imago topic lst: there is no command ['lst']"
    assert problem("imago topik list") == "there is no imago topik"
    assert "no option ['--quues']" in problem("imago topic create orders --quues 8")
    assert "no option ['--pods']" in problem("kubectl imago restart CLUSTER --pods x")
    assert problem("imago topic list|create|alter --json") == ""
