"""Both implementations of the hot modules, so that each test runs against each."""

from __future__ import annotations

import importlib
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from types import ModuleType

KINDS: Final = ("python", "compiled")
MODULES: Final = (
    "text._text",
    "records._record",
    "records._scan",
    "records._index",
    "records._metaq",
    "records._timing",
)


class Twin:
    """One kind of the hot functions, all of them as attributes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        suffix = "_py" if kind == "python" else "_c"
        self._modules = [load(f"imago_wire.{name}{suffix}") for name in MODULES]

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"{self.kind} twin has no {name}")

    def __repr__(self) -> str:
        return self.kind


def load(name: str) -> ModuleType:
    """Import a twin. A compiled one may only be missing where nothing could compile it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if name.endswith("_c") and not any(map(shutil.which, ("cc", "gcc", "clang"))):
            pytest.skip("no C compiler on this machine: there is no compiled twin to test")
        pytest.fail(f"{name} is not built: run `make setup`")
