"""A Secret in a pod's folder, as the kubelet keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class MountedSecret:
    """Files are links through one link, which is turned at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self._turns = folder, 0

    def write(self, files: Mapping[str, str]) -> None:
        self._turns += 1
        made = self.folder / f"..{self._turns}"
        made.mkdir()
        for name, text in files.items():
            (made / name).write_text(text)
        turned = self.folder / "..data_tmp"
        turned.symlink_to(made.name)
        turned.replace(self.folder / "..data")
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
