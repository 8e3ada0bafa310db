"""`imago log`: check or show a broker's files while it is stopped. Nothing is changed."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import print_json, print_line, print_table
from imago_cli.times import moment
from imago_log.errors import DataFolderLockedError, LaterFormatError, LogIOError
from imago_log.offline.check import CheckProgress, Finding, NotADataFolderError, Severity
from imago_log.offline.check import check as check_folder
from imago_log.offline.dump import Unreadable, readable_body, to_json
from imago_log.offline.dump import dump as dump_folder
from imago_wire.record_format.properties import KEYS, METAQ_POS, TAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_wire.records.record import StoredMessage

PREVIEW_SIZE = 60
"""Characters of a body in a table."""
COUNT_DEFAULT = 50
PAGE = 1000
"""Records of one table."""
COLUMNS = (
    "log offset",
    "topic",
    "queue",
    "offset",
    "MetaQ's",
    "stored (UTC)",
    "size",
    "keys",
    "body",
)
"""RocketMQ counts messages, MetaQ bytes: both stand side by side."""

Folder = Annotated[
    Path, Argument(metavar="DIR", help="Data folder of a broker, or of an imago up.")
]
Json = Annotated[bool, Option("--json", help="Print JSON for programs.")]


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Check or show a broker's files while it is stopped.")
    group.add("check", check)
    group.add("dump", dump)
    root.add("log", group)


def check(folder: Folder, as_json: Json = False) -> None:
    """Verify every file: each record's checksum, and each view against the records.

    Exit code 0 if all is well or the next start repairs it, 3 if data is damaged, 2 if the folder
    holds no store or a broker has it locked.
    """
    findings: list[Finding] = []
    with _told_errors(), _progress(shown=not as_json) as progress:
        for data_dir in store_folders(folder):
            findings += check_folder(data_dir, progress=progress)
    damaged = any(finding.severity is Severity.ERROR for finding in findings)
    if as_json:
        print_json({"ok": not damaged, "findings": [_finding_json(f) for f in findings]})
    elif findings:
        rows = [[f.severity.value, _place(f), f"{f.what}\ncure: {f.cure}"] for f in findings]
        print_table(str(folder), ["", "where", "finding"], rows)
    else:
        print_line(f"{folder}: every file is whole")
    sys.exit(Exit.DATA if damaged else Exit.DONE)


def dump(
    folder: Folder,
    topic: Annotated[str | None, Option(help="Only records of this topic.")] = None,
    queue: Annotated[int | None, Option(help="Only this queue of the topic.")] = None,
    start: Annotated[
        int, Option("--from", help="First log offset; with --queue first queue offset.")
    ] = 0,
    count: Annotated[int, Option(help="Maximum number of records; 0: all.", least=0)] = (
        COUNT_DEFAULT
    ),
    as_json: Json = False,
) -> None:
    """Show records in log order; JSON has one line per record."""
    if queue is not None and topic is None:
        raise CommandUsageError("--queue needs --topic: a queue is a topic's")
    with _told_errors():
        found = _records(folder, topic=topic, queue_id=queue, start=start, count=count or None)
        if as_json:
            for record in found:
                print_json(to_json(record))
            return
        while page := list(islice(found, PAGE)):
            print_table("", COLUMNS, [_row(record) for record in page])


def _records(
    folder: Path, *, topic: str | None, queue_id: int | None, start: int, count: int | None
) -> Iterator[StoredMessage | Unreadable]:
    for data_dir in store_folders(folder):
        yield from dump_folder(data_dir, topic=topic, queue_id=queue_id, start=start, count=count)


def store_folders(folder: Path) -> list[Path]:
    """Return the folder, or where an `imago up` keeps the stores of its shards below it."""
    shards = [path for path in folder.glob("shard-*") if (path / "commitlog").is_dir()]
    if (folder / "commitlog").is_dir() or not shards:
        return [folder]
    return sorted(shards, key=lambda path: (len(path.name), path.name))


@contextmanager
def _told_errors() -> Iterator[None]:
    try:
        yield
    except NotADataFolderError as error:
        raise CommandUsageError(str(error), cure="give the folder of broker.data_dir") from error
    except DataFolderLockedError as error:
        # Not the code of damage: whoever runs a check in a script must tell them apart.
        raise CommandUsageError(str(error), cure="stop the broker first") from error
    except LaterFormatError as error:
        raise CommandUsageError(str(error), cure="use the `imago` of that version") from error
    except LogIOError as error:
        raise CommandError(
            str(error), cure="see to the disk, and to who may read the folder", code=Exit.IO
        ) from error


@contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[CheckProgress], None] | None]:
    """Show a bar for each stage, when somebody looks."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    with Bars(console=Console(stderr=True), transient=True) as bars:
        stages: dict[str, TaskID] = {}

        def show(progress: CheckProgress) -> None:
            if progress.stage not in stages:
                stages[progress.stage] = bars.add_task(progress.stage, total=progress.total)
            bars.update(stages[progress.stage], completed=progress.done)

        yield show


def _place(finding: Finding) -> str:
    return str(finding.file) if finding.position is None else f"{finding.file}:{finding.position}"


def _finding_json(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity.value,
        "file": str(finding.file),
        "position": finding.position,
        "what": finding.what,
        "cure": finding.cure,
    }


def _row(found: StoredMessage | Unreadable) -> list[object]:
    if isinstance(found, Unreadable):
        place = f"unreadable to {found.end}: {found.reason}"
        return [found.start, "", "", "", "", "", found.end - found.start, "", place]
    keys = " ".join(found.properties[name] for name in (TAGS, KEYS) if name in found.properties)
    return [
        found.physical_offset,
        found.topic,
        found.queue_id,
        found.queue_offset,
        int(found.properties[METAQ_POS], 16) if METAQ_POS in found.properties else "",
        moment(found.store_ms),
        found.size,
        keys,
        _preview(readable_body(found)),
    ]


def _preview(body: bytes) -> str:
    text = body[: 4 * PREVIEW_SIZE].decode(errors="backslashreplace")
    shown = "".join(c if c.isprintable() else "\N{MIDDLE DOT}" for c in text[:PREVIEW_SIZE])
    return shown if len(text) <= PREVIEW_SIZE else f"{shown}…"
