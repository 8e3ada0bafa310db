"""The knobs of a broker's wall clock and disk: a small library that is preloaded into it."""

from __future__ import annotations

import mmap
import shutil
import subprocess
from pathlib import Path
from struct import Struct

_LAYOUT = Struct("=qqq")
_SOURCE = Path(__file__).with_name("faults.c")


def build(folder: Path) -> Path:
    """Compile the library; RuntimeError without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("no C compiler: apt-get install gcc libc6-dev")
    library = folder / "faults.so"
    options = ["-O2", "-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run([compiler, *options, "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    return library


class Knobs:
    """Wall clock and disk of one process, turned while it runs."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.path = path

    def turn(self, *, clock_s: float = 0, sync_delay_s: float = 0, sync_errno: int = 0) -> None:
        """Set all knobs; those that are not named go back to normal."""
        delays = (int(clock_s * 1e9), int(sync_delay_s * 1e9))
        self._map[:] = _LAYOUT.pack(*delays, sync_errno)

    def close(self) -> None:
        self._map.close()
