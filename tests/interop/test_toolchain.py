"""What is missing for the original clients is named, never skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.targets import chosen_target
from imago_testing.java.toolchain import ToolMissingError, toolchain

if TYPE_CHECKING:
    from pathlib import Path


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
