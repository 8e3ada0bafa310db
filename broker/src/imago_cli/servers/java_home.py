"""`imago java-home`: a Java for Spark, on a machine that may have none installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from imago_cli.output import print_line
from imago_cli.servers.java import find_java, spark_home

if TYPE_CHECKING:
    from imago_cli.line.declared import CommandGroup


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("java-home", java_home)


def java_home() -> None:
    """Print the JAVA_HOME of a Java that runs Spark: the one installed, or that of a package."""
    print_line(home_for_spark())


def home_for_spark() -> str:
    """Return that JAVA_HOME, made in the user's cache if need be."""
    java = find_java()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(spark_home(java, cache / "imago" / f"java-{java.version}"))
