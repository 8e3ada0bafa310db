"""Image archives as `docker save` writes them, made of layers."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def layer(files: Mapping[str, Path]) -> bytes:
    """Return a layer with these programs, by their absolute paths in the image."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, path in sorted(files.items()):
            info = tarfile.TarInfo(name.lstrip("/"))
            info.mode, info.size = 0o755, path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(info, file)
    return data.getvalue()


def write(target: Path, tag: str, layers: list[bytes], config: Mapping[str, Any]) -> None:
    """Write an archive that `ctr images import` reads."""
    digests = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
    image = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": digests},
    }
    encoded = json.dumps(image).encode()
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": names}]
    parts = {"config.json": encoded, "manifest.json": json.dumps(manifest).encode()}
    parts |= dict(zip(names, layers, strict=True))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w") as tar:
        for name, data in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
