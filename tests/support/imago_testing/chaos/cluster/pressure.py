"""How busy the machine is: on one that is, a long gap need not be the brokers' fault."""

from __future__ import annotations

from pathlib import Path

_PRESSURE = Path("/proc/pressure/cpu")


def waited_seconds(pressure: Path = _PRESSURE) -> float:
    """Return in how many seconds since the boot some process waited for a core.

    0 where the kernel does not tell.
    """
    if not pressure.exists():
        return 0.0
    some = pressure.read_text().splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6
