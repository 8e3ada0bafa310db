"""What all applications share: arguments, Spark's session, exit codes and last words.

Exit codes: 0 done, 1 failed (or found what it looks for), 2 wrong configuration, 5 another run of
the pipeline took over. Without `--config` the file is the one that an ImagoPipeline names in
`IMAGO_CONFIG`, and then the run's epoch is the one in `IMAGO_EPOCH`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from imago_client.errors import UsageError
from imago_spark.errors import FencedError, SourceError
from imago_spark.pipelines import settings
from imago_spark.pipelines.reports import Fence
from imago_spark.pipelines.session import is_submitted, session, submitted_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from imago_spark.pipelines.settings import IngestSettings

log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_FENCED: Final = 5
_OURS: Final = re.compile(r"imago_spark\.errors\.\w+: (.+)")
_SAID: Final = {
    "unrecognized arguments": "No such option",
    "the following arguments are required": "Missing option",
    "argument -": "-",
}
"""What `argparse` says, and what `imago` does."""
LAST_WORDS: Final = Path("/dev/termination-log")
LAST_WORDS_SIZE_MAX: Final = 1000


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a line as the commands of `imago` do."""

    def error(self, message: str) -> NoReturn:
        """End with the exit code of wrong usage."""
        for theirs, ours in _SAID.items():
            message = message.replace(theirs, ours)
        self.exit(EXIT_USAGE, f"error: {message}\n  cure: {self.prog} --help\n")


def parser(name: str, text: str | None) -> argparse.ArgumentParser:
    """Return a parser of what every application takes."""
    found = _Parser(
        prog=f"imago spark {name}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    config, epoch = os.environ.get("IMAGO_CONFIG"), os.environ.get("IMAGO_EPOCH", "")
    found.add_argument(
        "--config", type=Path, default=config, help="configuration file; see docs/pipelines.md"
    )
    found.add_argument(
        "--epoch",
        type=int,
        default=int(epoch) if config and epoch.isdecimal() else None,
        help="of this run",
    )
    found.add_argument("--cores", type=int, default=2, help="where nobody has submitted it")
    found.add_argument("--memory", default="1g", help="of the driver's JVM, likewise")
    found.add_argument("--short", action="store_true", help="start fast, for little data")
    return found


def run_once(
    name: str,
    text: str | None,
    own: tuple[str, ...],
    check: Callable[[IngestSettings], None],
    work: Callable[[SparkSession, argparse.Namespace, IngestSettings], dict[str, Any]],
    arguments: Sequence[str] | None,
) -> int:
    """Run an application that does one thing and prints a line of JSON; return the exit code.

    `own`: its names in the file's `[config]`, of which `check` refuses what is wrong.
    """
    made = parser(name, text)
    made.add_argument("--dry-run", action="store_true", help="write nothing")
    asked = made.parse_args(arguments)
    if asked.config is None:
        return refused(name, "--config is missing")
    log_lines()
    try:
        given = settings.load(asked.config, asked.epoch, own, unneeded=("checkpoint",))
        check(given)
    except (SourceError, UsageError) as error:
        return refused(name, error)

    def worked() -> int:
        Fence(given)()
        opened = spark(name, asked)
        try:
            told = work(opened, asked, given)
        finally:
            opened.stop()
        print(json.dumps(told, ensure_ascii=False), flush=True)
        return 0

    return guarded(worked)


def log_lines() -> None:
    """Have the run say on standard error what it does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)


def spark(name: str, asked: argparse.Namespace) -> SparkSession:
    """Return the session that somebody submitted, or a local one."""
    if is_submitted():
        return submitted_session(f"imago-{name}")
    made = session(f"imago-{name}", cores=asked.cores, memory=asked.memory, is_short=asked.short)
    made.sparkContext.setLogLevel("ERROR")
    return made


def refused(name: str, why: object) -> int:
    """Report a mistake of the one who starts it; return the exit code."""
    print(f"error: {why}\n  cure: {_cure(name)}", file=sys.stderr)
    return EXIT_USAGE


def _cure(name: str) -> str:
    return f"imago spark {name} --help; docs/pipelines.md has a configuration of each application"


def cause(error: Exception) -> str:
    """Return what an error of ours says that Spark brings from a worker, or else all of it."""
    found = _OURS.findall(str(error))
    return found[-1].strip() if found else str(error)


def guarded(work: Callable[[], int]) -> int:
    """Return the exit code of a run, whatever ends it."""
    try:
        return work()
    except FencedError as error:
        return ended(EXIT_FENCED, f"this run is over: {error}")
    except (SourceError, OSError) as error:
        return ended(EXIT_FAILED, str(error))
    except (PySparkException, Py4JError) as error:
        is_fenced = f"{FencedError.__name__}:" in str(error)  # a task was told first
        return ended(EXIT_FENCED if is_fenced else EXIT_FAILED, cause(error))


def ended(code: int, why: str) -> int:
    """Report the cause, also to Kubernetes' termination log; return the exit code."""
    log.error("%s", why)
    if LAST_WORDS.exists():
        with contextlib.suppress(OSError):
            LAST_WORDS.write_text(why.strip()[:LAST_WORDS_SIZE_MAX], encoding="utf-8")
    return code
