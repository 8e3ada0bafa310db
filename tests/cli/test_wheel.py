"""The wheel of `make wheel`, installed where there is no compiler: the demo runs from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_broker.admin.dashboard.files import FILES as DASHBOARD
from imago_testing.java import archives

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))
COMPILERS = ("cc", "gcc", "c99", "c89", "clang", "tcc", "cpp", "as", "ld")
COMPILER = re.compile(rf"(.*-)?({'|'.join(COMPILERS)}|[cg]\+\+)(-[0-9.]+)?")
"""Names of programs that the environment lacks: `gcc`, `x86_64-linux-gnu-gcc-12`, …"""
EXTENSIONS = sorted(path.stem for path in ROOT.glob("*/src/**/*.pyx"))

pytestmark = [
    pytest.mark.processes,
    pytest.mark.spark,
    pytest.mark.full,
]


def run(
    command: Sequence[object], *, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was built from it: as `make wheel` does."""
    folder = tmp_path_factory.mktemp("dist")
    # The environment that this runs in stays as it is.
    run(["make", "--assume-old=setup", "wheel", f"DIST={folder}"], cwd=ROOT)
    return folder


@dataclass(frozen=True, slots=True)
class Installed:
    """A fresh environment with the wheel in it."""

    programs: Path
    environment: dict[str, str]
    folder: Path

    def imago(self, *arguments: str) -> str:
        command = [self.programs / "imago", *arguments]
        return run(command, cwd=self.folder, env=self.environment).stdout

    def python(self, code: str) -> str:
        command = [self.programs / "python", "-I", "-c", code]
        return run(command, cwd=self.folder, env=self.environment).stdout.strip()


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel with the extra `spark` where no program compiles."""
    folder = tmp_path_factory.mktemp("installed")
    tools = folder / "tools"
    tools.mkdir()
    for directory in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for program in Path(directory).iterdir():
            link = tools / program.name
            if not COMPILER.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program)
    programs = folder / "venv" / "bin"
    ours = ("IMAGO", *archives.VARIABLES.values())
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    for name in ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV", "JAVA_HOME"):
        kept.pop(name, None)
    environment = kept | {"PATH": f"{programs}:{tools}", "CC": "false", "UV_LINK_MODE": "hardlink"}
    found = [name for name in COMPILERS if shutil.which(name, path=environment["PATH"])]
    assert found == [], "the environment has no compiler"
    run([UV, "venv", "-q", "--python", sys.executable, programs.parent], cwd=folder)
    wheel = next(dist.glob("*.whl"))
    # The versions that everything else is tested with.
    pins = ROOT / "requirements" / "run.txt"
    install = [UV, "pip", "install", "-q", "--python", programs / "python", "-c", pins]
    # Spark is there before: uv would unpack its sdist, 2 GB, to read what it needs.
    run([*install, "--no-deps", "pyspark"], cwd=folder, env=environment)
    run([*install, f"{wheel}[spark]"], cwd=folder, env=environment)
    return Installed(programs, environment, folder)


def test_wheel_has_the_compiled_modules_and_the_license(dist: Path) -> None:
    [wheel] = dist.glob("imago_mq-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    compiled = sorted(Path(name).name.split(".")[0] for name in names if name.endswith(".so"))
    assert compiled == EXTENSIONS
    assert "none-any" not in wheel.name
    assert {Path(name).name for name in names} >= {"LICENSE", "NOTICE", *DASHBOARD}
    assert not [name for name in names if name.endswith((".pyx", ".pxi", ".c", ".h"))]
    tops = {name.split("/")[0] for name in names}
    assert all(name.startswith(("imago_", "pyspark_imago")) for name in tops), tops


def test_sdist_has_what_a_build_needs(dist: Path) -> None:
    [sdist] = dist.glob("imago_mq-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    tracked = run(["git", "ls-files", "*/src/*"], cwd=ROOT).stdout.split()
    sources = {name for name in tracked if not name.startswith(("tests/", "e2e/", "bench/"))}
    sources = {name for name in sources if (ROOT / name).is_file()}
    assert len(sources) > 100
    assert sources <= names
    assert {"pyproject.toml", "broker/build_hot.py", "LICENSE", "NOTICE", "README.md"} <= names
    assert not [name for name in names if name.endswith((".so", ".c"))]


def test_installed_without_a_compiler_it_is_compiled(installed: Installed) -> None:
    told = installed.python(
        "import imago_wire.hot as hot, imago_cli, importlib.metadata as about;"
        "print(hot.COMPILED, hot.__file__, about.version('imago-mq'),"
        " *about.metadata('imago-mq').get_all('Provides-Extra'))"
    )
    compiled, path, version, *extras = told.split()
    assert compiled == "True"
    assert Path(path).is_relative_to(installed.programs.parent)
    assert installed.imago("--version") == f"imago {version}\n"
    assert sorted(extras) == ["delta", "objects", "operator", "otel", "spark"]
    wanted = installed.python("import importlib.metadata as a; print(*a.requires('imago-mq'))")
    assert "pyspark>=4.3; extra == 'spark'" in wanted


def test_demo_runs_from_it(installed: Installed) -> None:
    shown = json.loads(installed.imago("demo", "--json", "--data", str(installed.folder / "demo")))
    assert shown["problems"] == []
    counts = {step["what"]: step["messages"] for step in shown["steps"]}
    assert counts["read by a MetaQ group"] == counts["read by a RocketMQ group"]
    assert counts["landed by Spark"] == counts["read by a MetaQ group"] > 1000
