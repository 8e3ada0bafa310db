"""Images from Dockerfiles, by buildah in a storage of our own; only what changed is built again."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rig.places import CACHE, RigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ROOT, _RUN = CACHE / "containers", Path("/run/imago-e2e")
_STAMPS = CACHE / "built"
_BUILDAH = ("buildah", "--root", str(_ROOT), "--runroot", str(_RUN), "--storage-driver", "overlay")
# What a machine needs to reach its registries: lent to RUN, in no image.
_LENT = ("/etc/ssl/certs", "/etc/pip.conf")
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv", "tini")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One image: its Dockerfile, the folder it is built in, and what of that it depends on."""

    tag: str
    dockerfile: Path
    context: Path
    inputs: tuple[str, ...]
    """Patterns of files in the context; what they hold decides whether it is built again."""
    base: str
    """Tag of the image that its argument BASE names."""
    registries: bool = True
    """Whether it needs more than Debian's packages, which bring certificates of their own."""


def base() -> str:
    """Return the tag of the image that all others build on, made by debootstrap if need be."""
    release, mirror = _debian()
    digest = hashlib.sha256(repr((release, BASE_PACKAGES)).encode()).hexdigest()[:16]
    tag = f"localhost/imago-base:{digest}"
    if not identity(tag):
        _say(f"making {tag} of Debian {release}: about a minute, once")
        _bootstrap(tag, release, mirror)
    return tag


def bake(recipe: Recipe) -> str:
    """Build an image unless it is there, and return its identity."""
    inputs = _digest(recipe)
    stamp = _STAMPS / f"{recipe.tag.replace('/', '+')}.json"
    known = json.loads(stamp.read_text()) if stamp.exists() else {}
    if known.get("inputs") == inputs and (found := identity(recipe.tag)) == known["image"]:
        return found
    _say(f"building {recipe.tag}")
    began = time.monotonic()
    there = [path for path in _LENT if recipe.registries and Path(path).exists()]
    lent = [word for path in there for word in ("-v", f"{path}:{path}:ro")]
    command = [*_BUILDAH, "bud", "--layers", "--isolation", "chroot", "--network", "host", *lent]
    command += ["--build-arg", f"BASE={recipe.base}", "-f", str(recipe.dockerfile)]
    _run([*command, "-t", recipe.tag, str(recipe.context)])
    image = identity(recipe.tag)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(json.dumps({"inputs": inputs, "image": image}))
    _say(f"built {recipe.tag} in {time.monotonic() - began:.0f} s")
    return image


def identity(tag: str) -> str:
    """Return the image's identity; "" where there is none."""
    command = [*_BUILDAH, "inspect", "--type", "image", "--format", "{{.FromImageID}}", tag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def copy_out(tag: str, folder: Path, name: str) -> None:
    """Copy an image into a folder of the OCI layout, under a name; layers are not compressed."""
    storage = f"containers-storage:[overlay@{_ROOT}+{_RUN}]{tag}"
    flags = ["--insecure-policy", "copy", "-q", "--dest-oci-accept-uncompressed-layers"]
    _run(["skopeo", *flags, storage, f"oci:{folder}:{name}"])


def _digest(recipe: Recipe) -> str:
    digest = hashlib.sha256(identity(recipe.base).encode())
    digest.update(recipe.dockerfile.read_bytes())
    for path in _files(recipe.context, recipe.inputs):
        digest.update(str(path.relative_to(recipe.context)).encode() + b"\0")
        # Large ones are libraries under names that hold their versions.
        large = path.stat().st_size > 1 << 20
        digest.update(str(path.stat().st_size).encode() if large else path.read_bytes())
    return digest.hexdigest()


def _files(context: Path, patterns: Iterable[str]) -> list[Path]:
    found = {path for pattern in patterns for path in context.glob(pattern) if path.is_file()}
    left_out = {"__pycache__", "target"}
    kept = (path for path in found if not left_out & set(path.relative_to(context).parts))
    return sorted(path for path in kept if path.suffix not in {".so", ".pyc"})


def _debian() -> tuple[str, str]:
    """Return the release that this machine runs and the mirror that its own apt uses."""
    release = Path("/etc/os-release").read_text()
    words = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    name = words.get("VERSION_CODENAME", "").strip('"')
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    done = subprocess.run(
        [*command, "Created-By: Packages"], capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        if line.split()[1:] == [name, "main"]:
            return name, line.split()[0]
    raise RigError("no Debian mirror is known to apt here: run apt-get update on a Debian machine")


def _bootstrap(tag: str, release: str, mirror: str) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        tree = Path(made, "tree")
        include = f"--include={','.join(BASE_PACKAGES)}"
        _run(["debootstrap", "--variant=minbase", include, release, str(tree), mirror])
        for each in ("var/cache/apt/archives", "var/lib/apt/lists"):
            for path in (tree / each).rglob("*"):
                if path.is_file():
                    path.unlink()
        file = Path(made, "Dockerfile")
        file.write_text("FROM scratch\nCOPY tree/ /\n")
        _run([*_BUILDAH, "bud", "--isolation", "chroot", "-f", str(file), "-t", tag, made])


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    given = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    if done.returncode:
        said = (done.stdout + done.stderr)[-3000:]
        raise RigError(f"{' '.join(command[:1])} failed:\n{said}")


def _say(text: str) -> None:
    print(text, flush=True)
