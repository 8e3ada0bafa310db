"""`imago spark`: run one of the applications for Spark on this machine."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
from typing import Annotated, Final

from imago_cli.distribution import install
from imago_cli.exits import CommandUsageError
from imago_cli.line.declared import Argument, CommandGroup
from imago_cli.servers.java_home import home_for_spark

APPLICATIONS: Final = (
    *("ingest", "parse", "aggregate", "audit", "compact", "replay", "report"),
    *("topic_stats", "lag_latency", "dlq_triage"),
)


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("spark", spark)


def spark(
    application: Annotated[str, Argument(help=f"One of {', '.join(APPLICATIONS)}.")],
    words: Annotated[
        list[str] | None, Argument(rest=True, help="The application's own options, also --help.")
    ] = None,
) -> None:
    """Run an application for Spark on this machine, with a Java that is found for it.

    What follows its name goes to the application: imago spark report --help says what it takes.
    """
    if application not in APPLICATIONS:
        close = difflib.get_close_matches(application, APPLICATIONS, n=1)
        cure = f"did you mean {close[0]}?" if close else f"one of {', '.join(APPLICATIONS)}"
        raise CommandUsageError(f"there is no application {application!r}", cure=cure)
    if importlib.util.find_spec("pyspark") is None:
        raise CommandUsageError("PySpark is not installed", cure=install("spark"))
    command = [sys.executable, "-m", f"imago_spark.pipelines.{application}", *(words or [])]
    os.execve(sys.executable, command, os.environ | {"JAVA_HOME": home_for_spark()})  # noqa: S606
