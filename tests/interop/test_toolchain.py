"""What is missing for the original clients is named, never skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from imago_testing.interop.targets import TargetName, applies, chosen_target
from imago_testing.java.toolchain import ToolMissingError, toolchain

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def forget_what_was_found() -> None:
    toolchain.cache_clear()


def put_program(folder: Path, name: str, says: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


def test_missing_tool_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_program(tmp_path, "java", "")
    put_program(tmp_path, "javac", "javac 17.0.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match=r"mvn is not on the PATH: install a JDK >= 17"):
        toolchain()


def test_old_compiler_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("java", "mvn"):
        put_program(tmp_path, name, "")
    put_program(tmp_path, "javac", "javac 11.0.9")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match=r"javac 11\.0\.9 is too old"):
        toolchain()


def test_unknown_target_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTEROP_TARGET", "kafka-original")
    with pytest.raises(ValueError, match="kafka-original"):
        chosen_target()


@pytest.mark.parametrize(
    ("target", "places"),
    [
        (TargetName.METAQ_ORIGINAL, {"metaq"}),
        (TargetName.ROCKETMQ_ORIGINAL, {"rocketmq", "test_sdks.py"}),
    ],
)
def test_an_original_is_asked_in_its_own_protocol(target: TargetName, places: set[str]) -> None:
    """By the tree: a folder or module that moves leaves its target, or is asked of a wrong one."""
    there = {
        each.relative_to(HERE).parts[0]
        for each in HERE.rglob("test_*.py")
        if each.name != "test_toolchain.py"
    }
    assert {each for each in there if applies(each, target)} == places
    assert all(applies(each, TargetName.IMAGO) for each in there)
