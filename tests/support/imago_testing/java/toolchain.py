"""The JDK and Maven that the tests with original Java software need."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

JAVA_VERSION_MIN = 17
_CURE = f"install a JDK >= {JAVA_VERSION_MIN} and Maven (Debian: default-jdk-headless maven)"


class ToolMissingError(RuntimeError):
    """A tool is absent or too old. The text says what to install; nothing is ever skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Paths of the programs."""

    java: str
    javac: str
    maven: str


@cache
def toolchain() -> Toolchain:
    """Find the programs, or raise ToolMissingError."""
    found = Toolchain(java=_find("java"), javac=_find("javac"), maven=_find("mvn"))
    shown = subprocess.run([found.javac, "-version"], check=True, capture_output=True, text=True)
    version = re.search(r"\d+", shown.stdout + shown.stderr)
    if version is None or int(version.group()) < JAVA_VERSION_MIN:
        raise ToolMissingError(f"{shown.stdout.strip()} is too old: {_CURE}")
    return found


def _find(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ToolMissingError(f"{name} is not on the PATH: {_CURE}")
    return path
