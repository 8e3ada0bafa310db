"""The cluster's programs: built once for each content of go.mod, go.sum and our own sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from rig.places import CACHE, HERE, RigError

_GO = HERE / "go"
_KUBERNETES = "v1.37.1"
_STAMP = "k8s.io/component-base/version"
_FLAGS = ["-trimpath", "-gcflags=all=-dwarf=false"]
PROGRAMS = (
    "coredns",
    "etcd",
    "helm",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "pause",
    "volumes",
)


def programs() -> Path:
    """Return the folder with all programs; the first time this takes some minutes."""
    folder = CACHE / f"bin-{_digest()}"
    if not folder.exists():
        _build(folder)
    return folder


def _digest() -> str:
    digest = hashlib.sha256()
    for path in [_GO / "go.mod", _GO / "go.sum", *sorted(_GO.glob("cmd/*/*.go"))]:
        digest.update(path.read_bytes())
    digest.update(repr((_KUBERNETES, _FLAGS, _go_version())).encode())
    return digest.hexdigest()[:16]


def _go_version() -> str:
    if shutil.which("go") is None:
        raise RigError("Go is missing: install Go 1.26 or newer; it builds Kubernetes")
    done = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _build(folder: Path) -> None:
    print(f"building Kubernetes {_KUBERNETES}: about 7 minutes once, then never again", flush=True)
    began = time.monotonic()
    major, minor = _KUBERNETES.removeprefix("v").split(".")[:2]
    stamps = {
        "gitVersion": _KUBERNETES,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    link = " ".join(["-s", "-w", *(f"-X {_STAMP}.{name}={text}" for name, text in stamps.items())])
    CACHE.mkdir(parents=True, exist_ok=True)
    # GOGC: memory for time; the compiler is what takes the minutes.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOGC": "400"}
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        command = ["go", "build", *_FLAGS, "-ldflags", link, "-o", f"{made}/", "tool", "./cmd/..."]
        if subprocess.run(command, cwd=_GO, env=environment, check=False).returncode:
            raise RigError("go build failed: see above")
        Path(made, "server").rename(Path(made, "etcd"))
        missing = [name for name in PROGRAMS if not Path(made, name).exists()]
        if missing:
            raise RigError(f"go build made no {', '.join(missing)}")
        Path(made).chmod(0o755)
        Path(made).rename(folder)
        Path(made).mkdir()  # for the context manager to remove
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)
