"""Images from Dockerfiles, by buildah in a storage of our own; only what changed is built again."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.places import CACHE, RigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROOT, _RUN = CACHE / "containers", Path("/run/imago-e2e")
_STAMPS = CACHE / "built"
_BUILDAH = ("buildah", "--root", str(_ROOT), "--runroot", str(_RUN), "--storage-driver", "overlay")
# What a machine needs to reach its registries: lent to RUN, in no image.
_LENT = ("/etc/ssl/certs", "/etc/pip.conf")
_STEP = re.compile(r"^--> (?:Using cache )?([0-9a-f]{11,64})$", re.MULTILINE)
"""What buildah says of each step, also of those whose image was there already."""
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
    tag = _base_tag(release)
    if not identity(tag):
        _say(f"making {tag} of Debian {release}: about a minute, once")
        _bootstrap(tag, release, mirror)
    return tag


def bake(recipe: Recipe) -> str:
    """Build an image unless it is there, and return its identity."""
    inputs = _digest(recipe)
    stamp = _stamp(recipe.tag)
    known = _read(stamp)
    if known.get("inputs") == inputs and (found := identity(recipe.tag)) == known["image"]:
        return found
    _say(f"building {recipe.tag}")
    began = time.monotonic()
    there = [path for path in _LENT if recipe.registries and Path(path).exists()]
    lent = [word for path in there for word in ("-v", f"{path}:{path}:ro")]
    command = [*_BUILDAH, "bud", "--layers", "--isolation", "chroot", "--network", "host", *lent]
    command += ["--build-arg", f"BASE={recipe.base}", "-f", str(recipe.dockerfile)]
    steps = _STEP.findall(_run([*command, "-t", recipe.tag, str(recipe.context)]))
    image = identity(recipe.tag)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(json.dumps({"inputs": inputs, "image": image, "steps": steps}))
    _say(f"built {recipe.tag} in {time.monotonic() - began:.0f} s")
    return image


def identity(tag: str) -> str:
    """Return the image's identity; "" where there is none."""
    command = [*_BUILDAH, "inspect", "--type", "image", "--format", "{{.FromImageID}}", tag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def forget_all_but(tags: Iterable[str]) -> None:
    """Remove every image but the base, these, and the steps on the way to them."""
    kept = {*tags, _base_tag(_debian()[0])}
    steps = {step for tag in kept if (made := _read(_stamp(tag))) for step in made["steps"]}
    used = {identity(tag) for tag in kept} | steps
    for stamp in set(_STAMPS.glob("*.json")) - {_stamp(tag) for tag in kept}:
        stamp.unlink()
    if not _ROOT.exists():
        return
    _run([*_BUILDAH, "rm", "--all"])  # what a build that was stopped has left
    listed = _run([*_BUILDAH, "images", "--all", "--no-trunc", "--format", "{{.ID}}"])
    found = dict.fromkeys(line.removeprefix("sha256:") for line in listed.split())
    # Newest first, as they are listed: what others are made of cannot go before them.
    unused = [image for image in found if not any(one and image.startswith(one) for one in used)]
    if unused:
        _run([*_BUILDAH, "rmi", *unused])


def copy_out(tag: str, folder: Path, name: str) -> None:
    """Copy an image into a folder of the OCI layout, under a name; layers are not compressed."""
    storage = f"containers-storage:[overlay@{_ROOT}+{_RUN}]{tag}"
    flags = ["--insecure-policy", "copy", "-q", "--dest-oci-accept-uncompressed-layers"]
    _run(["skopeo", *flags, storage, f"oci:{folder}:{name}"])


def _stamp(tag: str) -> Path:
    return _STAMPS / f"{tag.replace('/', '+')}.json"


def _read(stamp: Path) -> dict[str, Any]:
    """Return what is known of an image that was built; nothing where that lacks its steps."""
    known: dict[str, Any] = json.loads(stamp.read_text()) if stamp.exists() else {}
    return known if "steps" in known else {}


def _base_tag(release: str) -> str:
    digest = hashlib.sha256(repr((release, BASE_PACKAGES)).encode()).hexdigest()[:16]
    return f"localhost/imago-base:{digest}"


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


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr)[-3000:]
        raise RigError(f"{' '.join(command[:1])} failed:\n{said}")
    return done.stdout


def _say(text: str) -> None:
    print(text, flush=True)
