"""`imago log`: check the files of a stopped broker, or show the records in them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from imago_cli.connect import AsJson  # noqa: TC001 - typer reads annotations at run time
from imago_cli.exits import CommandError, Exit, UsageError
from imago_cli.output import print_json, print_line, print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log.check import Finding, Progress
    from imago_wire.record import StoredMessage

Folder = Annotated[
    Path,
    typer.Argument(help="A broker's data folder, or that of `imago up` with its shards."),
]
BODY_SHOWN_MAX = 60
"""Characters of a body that the table for people shows."""
_PROGRESS_SECONDS = 1.0


def attach(root: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Check or show a broker's files while it is stopped."
    )
    group.command("check")(check)
    group.command("dump")(dump)
    root.add_typer(group, name="log")


def check(
    folder: Folder,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing of the progress.")] = False,
) -> None:
    """Verify every file; change nothing. Exit code 3 when something is damaged."""
    from imago_log.check import Severity
    from imago_log.check import check as check_store

    counts = dict.fromkeys(Severity, 0)
    rows: list[tuple[object, ...]] = []
    for data in data_folders(folder):
        shown = None if quiet else _Shown(data)
        with _refusals(data):
            for finding in check_store(data, progress=shown):
                counts[finding.severity] += 1
                if as_json:
                    print_json({"dataFolder": str(data), **_finding_json(finding)})
                else:
                    rows.append(_finding_row(finding, folder))
    if rows:
        print_table("", ("", "file", "byte", "what", "cure"), rows)
    errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
    if not as_json:
        say(f"{folder}: {errors} errors, {warnings} warnings, {counts[Severity.NOTE]} notes")
    if errors:
        raise typer.Exit(Exit.DATA)


def dump(
    folder: Folder,
    topic: Annotated[str | None, typer.Option(help="Only records of this topic.")] = None,
    queue: Annotated[
        int | None, typer.Option(min=0, help="Only records of this queue of the topic.")
    ] = None,
    start: Annotated[
        int,
        typer.Option("--from", min=0, help="First log offset; with --queue first queue offset."),
    ] = 0,
    count: Annotated[int, typer.Option(min=1, help="At most so many records a shard.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show records in the order of the log. Damaged places are named on standard error."""
    from imago_log.dump import Unreadable, to_json
    from imago_log.dump import dump as dump_store

    if queue is not None and topic is None:
        raise UsageError("--queue needs --topic", cure="name the topic whose queue it is")
    damaged = 0
    for data in data_folders(folder):
        with _refusals(data):
            found = dump_store(data, topic=topic, queue_id=queue, start=start, count=count)
            for record in found:
                if isinstance(record, Unreadable):
                    damaged += 1
                    say(f"{record.file}: {record.reason}, offsets {record.start} to {record.end}")
                if as_json:
                    print_json(to_json(record))
                elif not isinstance(record, Unreadable):
                    print_line(_line(record))
    if damaged:
        raise typer.Exit(Exit.DATA)


def data_folders(folder: Path) -> list[Path]:
    """Return the folder itself, or those of the shards of a cluster folder.

    UsageError: it is neither.
    """
    if (folder / "commitlog").is_dir():
        return [folder]
    shards = [
        path
        for path in folder.glob("shard-*")
        if path.name.removeprefix("shard-").isdecimal() and (path / "commitlog").is_dir()
    ]
    if not shards:
        raise UsageError(
            f"{folder} is no broker's data folder, and holds none",
            cure="give the folder that broker.data_dir names, or the one of `imago up --data`",
        )
    return sorted(shards, key=lambda path: int(path.name.removeprefix("shard-")))


@contextlib.contextmanager
def _refusals(data: Path) -> Iterator[None]:
    """Turn the store's refusals into errors of the command."""
    from imago_log import DataFolderLockedError, LogIOError
    from imago_log.check import NotADataFolderError

    try:
        yield
    except DataFolderLockedError as error:
        raise UsageError(
            f"a broker runs on {data}", cure="stop it first: its files change while it runs"
        ) from error
    except NotADataFolderError as error:
        raise UsageError(str(error)) from error
    except LogIOError as error:
        raise CommandError(str(error), code=Exit.IO) from error


class _Shown:
    """Shows progress on standard error, about once a second, and nothing of a short check."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._next = monotonic() + _PROGRESS_SECONDS

    def __call__(self, progress: Progress) -> None:
        if monotonic() < self._next:
            return
        self._next = monotonic() + _PROGRESS_SECONDS
        percent = 100 * progress.done // max(progress.total, 1)
        sys.stderr.write(f"{self._data}: {progress.stage} {percent}%\n")
        sys.stderr.flush()


def _finding_json(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity.value,
        "file": str(finding.file),
        "position": finding.position,
        "what": finding.what,
        "cure": finding.cure,
    }


def _finding_row(finding: Finding, folder: Path) -> tuple[object, ...]:
    position = "" if finding.position is None else finding.position
    file = finding.file.relative_to(folder)
    return finding.severity.value, file, position, finding.what, finding.cure


def _line(record: StoredMessage) -> str:
    from imago_cli.topic import moment
    from imago_log.dump import readable_body

    text = readable_body(record).decode("utf-8", "backslashreplace")
    body = text if len(text) <= BODY_SHOWN_MAX else text[: BODY_SHOWN_MAX - 1] + "…"
    place = f"{record.topic}/{record.queue_id}"
    labels = [f"tags={record.tags}"] if record.tags is not None else []
    labels += [f"keys={' '.join(record.keys)}"] if record.keys else []
    words = [
        str(record.physical_offset),
        place,
        str(record.queue_offset),
        moment(record.store_ms),
        *labels,
    ]
    return "  ".join([*words, repr(body)])
