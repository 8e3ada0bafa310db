"""What a replay remembers in its checkpoint: the plan, and how many steps of it are done.

`CHECKPOINT/ID.json`. It is written before the first row is sent, and after each step: a run that
dies in between sends that step again, under the same numbers, of which brokers take each once.

The table remembers which plan an id stands for, `PATH/_imago/replays/ID.json`: with another
checkpoint and other rows the id would send those once more that it has sent.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_spark.errors import OptionError, TableError
from imago_spark.pipelines.replay.slices import Plan

if TYPE_CHECKING:
    from imago_spark.pipelines.replay.slices import Slice

log = logging.getLogger(__name__)

FORMAT: Final = 2


@dataclass(slots=True)
class Journal:
    """A replay's plan and progress on disk."""

    path: Path
    plan: Plan
    done: int = 0

    def write(self) -> None:
        """Have it on the disk, whole, whatever dies."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(f".{os.getpid()}")
        text = json.dumps({"format": FORMAT, "done": self.done, "plan": self.plan.to_json()})
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def finish(self, step: int) -> None:
        """Note that a step is sent."""
        self.done = step + 1
        self.write()


def place(checkpoint: str, wanted: Slice) -> Path:
    """Return where a replay's journal is. OptionError: nowhere."""
    if not checkpoint.startswith("/"):
        raise OptionError(
            f"checkpoint: {checkpoint!r}, must be a folder of a mounted volume, like /checkpoint"
        )
    if "/" in wanted.id or wanted.id.startswith("."):
        raise OptionError(f"config.id: {wanted.id!r} cannot be the name of a file")
    return Path(checkpoint) / f"{wanted.id}.json"


def read(path: Path, wanted: Slice) -> Journal | None:
    """Return what is remembered; None: nothing. TableError: it is of another slice, or damaged."""
    try:
        journal = _decode(path, path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise TableError(f"{path}: {error!r}") from error
    if journal.plan.digest != wanted.digest:
        raise TableError(
            f"{path}: id {wanted.id!r} was begun with other settings: topics, slice, rows of a step"
            " and target stay; give them back, or choose another id"
        )
    return journal


def claim(table: Path, wanted: Slice, kept: Journal) -> None:
    """Have the table remember what an id stands for. TableError: it stands for another plan."""
    path = table / "_imago" / "replays" / f"{wanted.id}.json"
    made = {"plan": kept.plan.sink, "journal": str(kept.path)}
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            plan, where = found["plan"], found["journal"]
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"{path}: {error!r}") from error
        if plan != made["plan"]:
            raise TableError(
                f"{path}: id {wanted.id!r} was begun with other rows or settings, as {where} says:"
                " with this checkpoint rows would be sent once more; give it that one back, or"
                " choose another id"
            )
        return
    try:
        path.parent.mkdir(exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(made), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        log.warning("%s: %s: only the checkpoint knows what was sent", path, error.strerror)


def _decode(path: Path, text: str) -> Journal:
    found = json.loads(text)
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']!r}, this version knows {FORMAT}")
    return Journal(path, Plan.from_json(found["plan"]), found["done"])
