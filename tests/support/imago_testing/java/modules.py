"""Class paths: what Maven fetched, and our own sources compiled beside it.

Each module is a folder below tests/interop/java with a pom.xml that names the original
software. Two versions of one client exclude each other, so each module has its own class path.
Maven keeps what it fetched in its repository in the home folder; a second build runs offline.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imago_testing.java.toolchain import toolchain

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)
JAVA_ROOT = Path(__file__).parents[3] / "interop" / "java"
_COPY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_SECONDS_MAX = 900
_COMPILE_SECONDS_MAX = 300


class JavaBuildError(RuntimeError):
    """Maven or the compiler failed; the text ends with what it said."""


@dataclass(frozen=True, slots=True)
class JavaModule:
    """One class path: the module's folder, and the source folders compiled against it."""

    name: str
    sources: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return JAVA_ROOT / self.name

    def class_path(self) -> str:
        """Fetch and compile what is not there yet, and return the class path."""
        target = self.folder / "target"
        target.mkdir(exist_ok=True)
        with _locked(target / "lock"):
            self._fetch(target / "lib")
            self._compile(target / "classes", target / "lib")
        return os.pathsep.join([str(target / "classes"), str(target / "lib" / "*")])

    def _fetch(self, library: Path) -> None:
        pom = self.folder / "pom.xml"
        with _unless_current(library, _digest([pom])) as stale:
            if not stale:
                return
            _log.info("fetching module=%s", self.name)
            command = [toolchain().maven, "-q", "-B", "-f", str(pom), _COPY_PLUGIN]
            command += ["-DincludeScope=runtime", f"-DoutputDirectory={library}"]
            if _run([*command, "-o"], _FETCH_SECONDS_MAX) is None:
                return
            # Two that fetch at once would spoil Maven's repository, which they share.
            with _locked(Path(tempfile.gettempdir(), f"imago-maven-{os.getuid()}.lock")):
                failure = _run(command, _FETCH_SECONDS_MAX)
            if failure is not None:
                raise JavaBuildError(f"Maven could not fetch {self.name}:\n{failure}")

    def _compile(self, classes: Path, library: Path) -> None:
        files = [
            path
            for folder in self.sources
            for path in sorted((JAVA_ROOT / "src" / folder).rglob("*"))
            if path.is_file()
        ]
        java = [str(path) for path in files if path.suffix == ".java"]
        with _unless_current(classes, _digest([self.folder / "pom.xml", *files])) as stale:
            if not stale or not java:
                return
            options = ["--release", "17", "-nowarn", "-d", str(classes), "-cp", f"{library}/*"]
            failure = _run([toolchain().javac, *options, *java], _COMPILE_SECONDS_MAX)
            if failure is not None:
                raise JavaBuildError(f"compiling {self.name} failed:\n{failure}")
            for settings in (path for path in files if path.suffix == ".properties"):
                shutil.copy(settings, classes)


METAQ_CLIENT = JavaModule("metaq-client", ("driver", "metaq"))
ROCKETMQ4_CLIENT = JavaModule("rocketmq4-client", ("driver", "rocketmq"))
ROCKETMQ5_CLIENT = JavaModule("rocketmq5-client", ("driver", "rocketmq"))
ROCKETMQ5_SDK = JavaModule("rocketmq5-sdk", ("sdk",))
METAQ_SERVER = JavaModule("metaq-server", ("metaq-server",))
METAQ_PARTS = JavaModule("metaq-parts", ("metaq-parts",))
ROCKETMQ4_SERVER = JavaModule("rocketmq4-server", ("filter",))
ROCKETMQ5_SERVER = JavaModule("rocketmq5-server", ("filter",))
ROCKETMQ5_PROXY = JavaModule("rocketmq5-proxy")
KAFKA_SERVER = JavaModule("kafka-server")
SPARK_KAFKA = JavaModule("spark-kafka")


def _run(command: list[str], seconds_max: float) -> str | None:
    """Run it; None when it worked, else the end of what it said."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds_max)
    return None if done.returncode == 0 else (done.stdout + done.stderr)[-4000:]


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _unless_current(folder: Path, digest: str) -> Iterator[bool]:
    """Yield whether the folder must be made anew, emptied; mark it as made at the end."""
    stamp = folder.with_suffix(".stamp")
    stale = not stamp.exists() or stamp.read_text() != digest
    if stale:
        stamp.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    yield stale
    stamp.write_text(digest)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Test processes that run side by side build a module once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
