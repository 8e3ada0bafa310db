"""How full the disk is, and whether messages are refused for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from imago_log.disk.files import fatal
from imago_log.errors import DiskFullError

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.config import StoreConfig
    from imago_log.disk.space import Space
    from imago_log.disk.vfs import DiskUsage, Vfs


class DiskLevel(Enum):
    """Levels of a filling disk, by the store's reaction."""

    NORMAL = "normal"
    CLEAN = "clean"
    FORCE = "force"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRatios:
    """Shares of the disk at which the store reacts."""

    clean: float
    force: float
    full: float

    @classmethod
    def of(cls, config: StoreConfig) -> DiskRatios:
        """Return those that are configured."""
        return cls(
            clean=config.disk_clean_ratio,
            force=config.disk_force_ratio,
            full=config.disk_full_ratio,
        )


def disk_level(used_ratio: float, ratios: DiskRatios) -> DiskLevel:
    """Return the level of a disk this full."""
    if used_ratio > ratios.full:
        return DiskLevel.FULL
    if used_ratio > ratios.force:
        return DiskLevel.FORCE
    return DiskLevel.CLEAN if used_ratio > ratios.clean else DiskLevel.NORMAL


class DiskPressure:
    """What the disk allows. All methods belong to the store's thread."""

    def __init__(self, vfs: Vfs, root: Path, space: Space, ratios: DiskRatios) -> None:
        self._vfs, self._root, self._space, self._ratios = vfs, root, space, ratios
        self.level = DiskLevel.NORMAL
        self.used_ratio = 0.0
        self.room_bytes = 0
        """What may be written before old files of the log go for it."""
        self.refusal: DiskFullError | None = None
        """Why messages are refused."""
        self.copy_refusal: DiskFullError | None = None
        """Why a leader's bytes are refused, too."""

    @property
    def is_full(self) -> bool:
        """Whether writes that can wait have to."""
        return self.level is DiskLevel.FULL

    def measure(self) -> None:
        """See how full the disk is."""
        with fatal("measure", self._root):
            usage = self.usage()
        self.used_ratio = usage.ratio
        self.room_bytes = int(usage.total * self._ratios.force) - usage.used
        self.level = disk_level(self.used_ratio, self._ratios)

    def usage(self) -> DiskUsage:
        """Return how full the disk is now."""
        return self._vfs.disk_usage(self._root)

    def decide(self, used_ratio: float) -> None:
        """Refuse messages on a full disk, with what is used by now; take them again below.

        A leader's bytes are refused halfway from there to the disk's end: among them is the word
        that old files go.
        """
        self.refusal = self.copy_refusal = None
        if self.is_full:
            self.refusal = DiskFullError(used_ratio=used_ratio, limit_ratio=self._ratios.full)
        copies = (1 + self._ratios.full) / 2
        if self.used_ratio > copies:
            self.copy_refusal = DiskFullError(used_ratio=used_ratio, limit_ratio=copies)
        self.look_at_space()

    def look_at_space(self) -> None:
        """Refuse messages while views find no room: memory must hold what their files cannot."""
        if self._space.short:
            no_room = DiskFullError(used_ratio=self.used_ratio, limit_ratio=1.0)
            self.refusal = self.refusal or no_room
            self.copy_refusal = self.copy_refusal or no_room
