"""How much memory unfinished input may take, and how much the process."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.core.budget import InputBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config import BrokerConfig

INPUT_BYTES_TOTAL_MAX = 40 << 20
"""Eight large messages at once and more; with what goes beyond it, a broker stays below 64 MiB."""
INPUT_PART_OF_MEMORY = 8
"""Unfinished input gets an eighth of the memory that the process may take, where that is less."""
FREED_BYTES_MIN = 16 << 20
"""Freed input for which the whole heap is looked through."""
ROOT = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
NO_LIMIT = 1 << 60
"""Version 1 of control groups writes about 2**63 where no limit is set."""


def input_budget(config: BrokerConfig, memory_limit: int | None) -> InputBudget:
    """Return the budget of a process that may take so much memory; None: as much as there is."""
    bytes_max = config.limits.input_bytes_total_max
    if not bytes_max:
        part = INPUT_BYTES_TOTAL_MAX
        if memory_limit is not None:
            part = min(part, memory_limit // INPUT_PART_OF_MEMORY)
        bytes_max = max(part, config.rocketmq.frame_bytes_max)
    return InputBudget(bytes_max)


def give_back_freed() -> None:
    """Have the C library give the kernel what is free below memory that is in use.

    By itself it gives back the end of the heap alone. Nothing happens with other C libraries.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class FreedInput:
    """Gives back what unfinished input took, once its peers are gone or it was whole."""

    def __init__(
        self, budget: InputBudget, give_back: Callable[[], None] = give_back_freed
    ) -> None:
        self._budget, self._give_back = budget, give_back

    def look(self) -> None:
        """Look once a second."""
        budget = self._budget
        if budget.most - budget.held >= FREED_BYTES_MIN:
            budget.most = budget.held
            self._give_back()


def memory_limit(root: Path = ROOT, own_groups: Path = OWN_GROUPS) -> int | None:
    """Return the least limit in bytes of the process's groups; None where none is set.

    Both versions of control groups. Inside a container the group's own folder is the root.
    """
    limits = [
        limit for path in _limit_files(root, own_groups) if (limit := _limit_in(path)) is not None
    ]
    return min(limits, default=None)


def _limit_files(root: Path, own_groups: Path) -> list[Path]:
    """Return the files that may hold a limit: of the process's groups and all above them."""
    files = [root / "memory.max", root / "memory" / "memory.limit_in_bytes"]
    try:
        lines = own_groups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return files
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        folder = root if not controllers else root / "memory"
        file = "memory.limit_in_bytes" if controllers else "memory.max"
        if controllers and "memory" not in controllers.split(","):
            continue
        path = Path(name.lstrip("/"))
        files += [folder / each / file for each in (path, *path.parents) if ".." not in each.parts]
    return files


def _limit_in(path: Path) -> int | None:
    """Return what the file says; None: nothing, no limit, or more than a machine has."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    limit = int(text) if text.isdecimal() else NO_LIMIT
    return limit if limit < NO_LIMIT else None
