"""Takes the compiled twin of a hot module where it is whole; else the plain Python one serves.

A compiled module that lacks a name was built from older sources, so that nothing else of it is
trusted either: it is left out whole, and so is what was built on it. The other modules stay.
``IMAGO_PURE=1`` leaves out all of them.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PURE: Final = os.environ.get("IMAGO_PURE") == "1"
"""Whether the plain Python twins were asked for."""

missing: Final[list[str]] = []
"""Modules that could not be loaded, and names that loaded modules lack; nothing where ``PURE``."""

_left_out: Final[set[str]] = set()


def compiled_twins(
    module: str, names: Sequence[str], *, needs: Sequence[str] = ()
) -> dict[str, object]:
    """Return a compiled module's functions by name; nothing where the plain ones have to serve.

    ``needs`` are compiled modules on whose objects this one works.
    """
    if PURE:
        return {}
    absent = _absent(module, names)
    missing.extend(absent)
    if absent or not _left_out.isdisjoint(needs):
        _left_out.add(module)
        return {}
    found = vars(importlib.import_module(module))
    return {name: found[name] for name in names}


def _absent(module: str, names: Sequence[str]) -> list[str]:
    try:
        found = vars(importlib.import_module(module))
    except Exception:  # built from sources so old that not even what it imports is there any more
        return [module]
    return [f"{module}.{name}" for name in names if name not in found]
