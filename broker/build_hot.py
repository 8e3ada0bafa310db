"""Compile the hot modules (``*.pyx``) beside their sources, where a C compiler is found.

Used twice: as hatchling's build hook (wheels and images) and as a script by ``make setup``.
Without a compiler nothing is built and the plain Python twins serve: slower, never different.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script, in an environment without hatchling
    BuildHookInterface = object

HERE = Path(__file__).parent
SOURCES = (HERE / "src", HERE.parent / "spark-apps" / "src")


def compiler() -> str | None:
    """Return the C compiler that would be used, or None."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")


def compile_hot(*, force: bool = False) -> list[Path]:
    """Compile every ``*.pyx`` in place; return the modules that were built."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    found = [(source, path) for source in SOURCES for path in sorted(source.rglob("*.pyx"))]
    extensions = [
        Extension(
            ".".join(path.relative_to(source).with_suffix("").parts),
            [str(path)],
            include_dirs=[str(SOURCES[0] / "imago_wire")],  # _hot.h
            extra_compile_args=["-O2", "-fno-strict-aliasing", "-Wno-unused-function"],
        )
        for source, path in found
    ]
    modules = cythonize(extensions, force=force, quiet=True, language_level=3)
    folders = {each.name: str(each) for source in SOURCES for each in source.glob("imago_*")}
    command = build_ext(Distribution({"ext_modules": modules, "package_dir": folders}))
    command.inplace = True
    command.force = force
    command.ensure_finalized()
    command.run()
    return [path for _, path in found]


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """hatchling's door to :func:`compile_hot`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # `make setup` compiles on its own, where its messages are seen
        if compiler() and compile_hot():
            build_data["infer_tag"] = True
            build_data["pure_python"] = False
        elif required():
            raise RuntimeError(
                "no C compiler found: install gcc and Python's headers, or build without"
                " IMAGO_REQUIRE_COMPILED=1 a wheel whose plain Python twins serve"
            )


def required() -> bool:
    """Return whether a build without compiled modules is an error."""
    return os.environ.get("IMAGO_REQUIRE_COMPILED") == "1"


def main() -> int:
    if os.environ.get("IMAGO_PURE") == "1" and not required():
        print("hot modules: left uncompiled (IMAGO_PURE=1)")
        return 0
    if compiler() is None:
        print("hot modules: no C compiler found, the plain Python twins serve (slower)")
        return 2 if required() else 0
    try:
        built = compile_hot(force="--force" in sys.argv[1:])
    except Exception as error:  # a compiler without Python's headers, a full disk, …
        if required():
            raise
        print(f"hot modules: not compiled ({error}); the plain Python twins serve (slower)")
        return 0
    print(f"hot modules: compiled {', '.join(path.stem for path in built) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
