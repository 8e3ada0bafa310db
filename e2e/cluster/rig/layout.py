"""The images that were built, in one folder of the OCI layout, and how they get to containerd.

containerd keeps every layer under its digest in a folder; what is there already is not sent again,
so that a change of our code costs a few hundred kilobytes.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

from rig import baking
from rig.locks import alone
from rig.places import CACHE, RigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FOLDER = CACHE / "layout"
_NAMES = CACHE / "layout-names.json"
_BLOBS = "blobs/sha256"


def put(tag: str, image: str, name: str) -> None:
    """Take an image over from where it was built, under the name that pods give it."""
    with alone("layout"):
        known = _known()
        if known.get(name, {}).get("image") != image:
            _put(tag, image, name, known)


def _put(tag: str, image: str, name: str, known: dict[str, Any]) -> None:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    baking.copy_out(tag, _FOLDER, "last")
    index = json.loads((_FOLDER / "index.json").read_text())
    entry = index["manifests"][-1]
    known[name] = {"image": image, "manifest": entry["digest"], "size": entry["size"]}
    (_FOLDER / "index.json").unlink()
    _NAMES.write_text(json.dumps(known, indent=1))
    _forget_unused(known)


def forget_all_but(names: Iterable[str]) -> None:
    """Remove images that are no longer made, and layers of which none is left."""
    with alone("layout"):
        kept = set(names)
        known = {name: entry for name, entry in _known().items() if name in kept}
        if _FOLDER.exists():
            _NAMES.write_text(json.dumps(known, indent=1))
            _forget_unused(known)


def missing(present: dict[str, str]) -> list[str]:
    """Return the names of images that `present`, name to digest, lacks or has otherwise."""
    return [name for name, entry in _known().items() if present.get(name) != entry["manifest"]]


def send(names: list[str], content: Path, import_command: list[str]) -> None:
    """Give images to a containerd whose layers lie in `content`."""
    with alone("layout"):
        _send(names, content, import_command)


def _send(names: list[str], content: Path, import_command: list[str]) -> None:
    known = _known()
    entries = {name: known[name] for name in names}
    importing = subprocess.Popen(
        import_command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert importing.stdin is not None
    with importing.stdin, tarfile.open(fileobj=importing.stdin, mode="w|") as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(tar, "index.json", json.dumps(_index(entries)).encode())
        for digest in sorted({each for entry in entries.values() for each in _parts(entry)}):
            if not (content / _BLOBS / digest).exists():
                tar.add(_FOLDER / _BLOBS / digest, f"{_BLOBS}/{digest}")
    assert importing.stderr is not None
    with importing.stderr:
        said = importing.stderr.read().decode(errors="replace")
    if importing.wait():
        raise RigError(f"{' '.join(import_command)}: {said.strip()}")
    _share(content)


def _share(content: Path) -> None:
    """Have a containerd's copies of layers be links to ours: nobody writes to either."""
    for own in (_FOLDER / _BLOBS).iterdir():
        copy = content / _BLOBS / own.name
        if copy.exists() and not copy.samefile(own):
            link = content / f"{own.name}.link"
            link.hardlink_to(own)
            link.replace(copy)


def _known() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(_NAMES.read_text()) if _NAMES.exists() else {}
    return known


def _index(entries: dict[str, Any]) -> dict[str, Any]:
    manifests = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": entry["manifest"],
            "size": entry["size"],
            "annotations": {"io.containerd.image.name": name},
        }
        for name, entry in entries.items()
    ]
    return {"schemaVersion": 2, "manifests": manifests}


def _parts(entry: dict[str, Any]) -> list[str]:
    """Return the digests of everything that belongs to an image."""
    own = entry["manifest"].removeprefix("sha256:")
    manifest = json.loads((_FOLDER / _BLOBS / own).read_text())
    parts = [manifest["config"], *manifest["layers"]]
    return [own, *(part["digest"].removeprefix("sha256:") for part in parts)]


def _forget_unused(known: dict[str, Any]) -> None:
    used = {digest for entry in known.values() for digest in _parts(entry)}
    for path in (_FOLDER / _BLOBS).iterdir():
        if path.name not in used:
            path.unlink()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
