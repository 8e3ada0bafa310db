"""A folder of Parquet files to which one run at a time adds batches, each whole or not at all.

```
PATH/date=2026-11-21/000000000012-00000.parquet   committed rows; any reader of Parquet finds them
PATH/_rejects/date=…/….parquet                    of parse: rows that are none of the table's
PATH/_imago/commits/000000/000000000012.json      the content of a commit, and the table's offsets
PATH/_delta_log/                             the same commits for readers that know Delta (`delta`)
PATH/_imago/compacting/<attempt>/….parquet        files that will replace others
PATH/_imago/staging/<attempt>/date=…/….parquet    uncommitted rows; readers skip `_` names
```

A run writes a batch below `staging`, then commits it by creating its file of `commits` with a hard
link, which fails if that number exists: from this moment its rows belong to the table. Then the run
moves the batch's files to their places, and the next run moves those that are left. So a reader of
the folder sees no row twice and no uncommitted row; only if a run dies in that moment does a reader
see a part of its batch, until the next run begins.

A run begins with a commit that adds nothing. Since numbers have no gaps, no earlier run can commit
after it: its next number exists. A run with a lower epoch than the last one's cannot begin.

Who looks after the table (`compact`) commits beside the run, under the same rule and in its name:
the run that finds its next number taken by such a commit goes on after it. Whoever makes a commit
has moved the files of the one before. So only the last one's may be on their way, whoever dies.

The folder must be on a file system with hard links and atomic renames that all pods share: a claim.
In an object store a table is another thing (`object_table`).
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from imago_spark.errors import FencedError, TableError
from imago_spark.pipelines.tables.commits import REJECTED, Commit, decode, encode
from imago_spark.pipelines.tables.delta import is_delta, publish
from imago_spark.pipelines.tables.joining import joined, opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from imago_spark.pipelines.tables.commits import DataFile, StagedBatch, Upkeep

GOOD, REJECTS = "rejected=false", "_rejects"
"""Staged folder of what goes to the table itself, and the folder of its rejects."""
FOLDER_SIZE: Final = 10_000
"""Commits in one folder: finding the last one costs two short listings."""


class TableWriter:
    """The right of one run to write a table. Not thread-safe."""

    def __init__(self, path: Path, *, epoch: int = 0, delta: bool = False) -> None:
        self.path, self._epoch = path, epoch
        self._delta = delta
        """Whether it gets a Delta log; one that has it keeps it."""
        self._commits = path / "_imago" / "commits"
        self._staging = path / "_imago" / "staging"
        self._compacting = path / "_imago" / "compacting"
        self._run = uuid4().hex
        self._last: Commit | None = None

    @property
    def last(self) -> Commit:
        """The last commit of this run, including its first."""
        if self._last is None:
            raise AssertionError("begin() comes first")
        return self._last

    @property
    def identity(self) -> str:
        """What no other table has, not even one made anew at this path: its first commit's run."""
        return self.read(0).run

    def begin(self) -> Commit:
        """Exclude all earlier runs; finish what they left. FencedError: a later one has begun."""
        self._commits.mkdir(parents=True, exist_ok=True)
        self._staging.mkdir(exist_ok=True)
        while True:
            stands = self.read_last()
            opened = opening(self.path, stands, self._epoch, self._run)
            if stands is not None:
                self._publish(stands)
            if self._put(opened):
                break
        self._last = opened
        self._clear_staging()  # nobody can commit any of it now
        return opened

    def stage(self) -> Path:
        """Return the path of a new folder to write a batch to."""
        return self._staging / f"{self._epoch}-{uuid4().hex}"

    def unstage(self, attempt: Path) -> None:
        """Remove what was staged, once it is committed, or was not wanted."""
        shutil.rmtree(attempt, ignore_errors=True)

    def has(self, query: str, batch: int) -> bool:
        """Whether this batch of a checkpoint is committed."""
        return self.last.query == query and batch <= self.last.batch

    def commit(self, added: StagedBatch, *, holes: bool = False) -> Commit:
        """Add a batch. `holes`: rows before it may be missing because they are gone for good.

        FencedError: another run has begun. TableError: the table has some of the rows already, or
        would lack rows before them, or has those of another topic of that name.
        """
        made = self._added(added, holes=holes)
        while not self._put(made):
            self._take_in(self.read(made.number))
            made = self._added(added, holes=holes)
        self._last = made
        self._publish(made)
        return made

    def _added(self, added: StagedBatch, *, holes: bool) -> Commit:
        files = self._placed(added.files, self.last.number + 1)
        return joined(self.last, added, files, holes=holes)

    def _take_in(self, made: Commit) -> None:
        """Go on after a commit that somebody made who keeps the table; FencedError: another run."""
        if made.run != self.last.run:
            raise FencedError(f"{self.path}: another run has begun to write to this table")
        self._publish(made)
        self._last = made

    def join(self) -> Commit:
        """Look after a table beside the run that writes it. TableError: there is no table."""
        stands = self.read_last()
        if stands is None:
            raise TableError(f"{self.path}: is no table: it has no commit")
        self._compacting.mkdir(exist_ok=True)  # nobody clears it when a run begins
        self._publish(stands)
        self._last = stands
        return stands

    def maintain(self, done: Upkeep) -> Commit:
        """Replace files of a table that was joined, whatever its run commits meanwhile.

        TableError: somebody else has replaced some of them, or a topic was made anew.
        """
        made = self._kept(done)
        while not self._put(made, self._compacting):
            other = self.read(made.number)
            if not {*other.removed}.isdisjoint(done.removed):
                raise TableError(f"{self.path}: somebody else has replaced files: run it again")
            if _made_anew(made, other):
                raise TableError(f"{self.path}: a topic was made anew meanwhile: run it again")
            self._publish(other)
            self._last = other
            made = self._kept(done)
        self._last = made
        self._publish(made)
        return made

    def _kept(self, done: Upkeep) -> Commit:
        number = self.last.number + 1
        return replace(
            self.last,  # also its run: it goes on
            number=number,
            rows=self.last.rows - done.rows,
            damaged=self.last.damaged - done.damaged,
            files=tuple(
                replace(one, path=f"{one.path}/{number:012d}-{index:05d}.parquet")
                for index, one in enumerate(done.files)
            ),
            landed=(),
            removed=done.removed,
            expired=done.expired,
        )

    def place(self, file: DataFile) -> Path:
        """Return where a committed file is: readers' place, or where it was staged."""
        path = self.path / file.path
        return path if path.exists() else self._staging / file.staged

    def read_last(self) -> Commit | None:
        """Return the last commit of any run; None: there is none."""
        folders = _numbers(self._commits)
        for folder in sorted(folders, reverse=True):
            if numbers := _numbers(self._commits / folder):
                return self.read(int(max(numbers).removesuffix(".json")))
        return None

    def read(self, number: int) -> Commit:
        """Return one commit. TableError: it is unreadable."""
        path = self._path_of(number)
        try:
            return decode(json.loads(path.read_bytes()))
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"{path}: {error!r}") from error

    def _clear_staging(self) -> None:
        for left in self._staging.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)

    def _placed(self, files: Iterable[DataFile], number: int) -> Iterable[DataFile]:
        for index, file in enumerate(files):
            folder = [part for part in file.staged.split("/")[1:-1] if part != GOOD]
            if REJECTED in folder:
                folder[folder.index(REJECTED)] = REJECTS
            yield replace(file, path="/".join([*folder, f"{number:012d}-{index:05d}.parquet"]))

    def _path_of(self, number: int) -> Path:
        return self._commits / f"{number // FOLDER_SIZE:06d}" / f"{number:012d}.json"

    def _put(self, commit: Commit, drafts: Path | None = None) -> bool:
        """Create the file of a commit; False: it exists."""
        for file in commit.files:
            _sync(self._staging / file.staged)
        path = self._path_of(commit.number)
        path.parent.mkdir(exist_ok=True)
        draft = (drafts or self._staging) / f"{self._run}.json"
        draft.write_text(json.dumps(encode(commit)), encoding="utf-8")
        _sync(draft)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        _sync(path.parent)
        return True

    def _publish(self, commit: Commit) -> None:
        """Move the files of a commit to their places, unless they are there.

        Those that it takes away go before: no reader sees a row twice.
        """
        self._remove(commit)
        folders = {(self.path / file.path).parent for file in commit.files}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for file in commit.files:
            target = self.path / file.path
            if target.exists():
                continue
            try:
                (self._staging / file.staged).rename(target)
            except FileNotFoundError:
                if not target.exists() and not self._is_removed_after(commit, file):
                    raise TableError(f"{target}: committed, but its rows are gone") from None
        for folder in folders:
            _sync(folder)
        if self._delta or is_delta(self.path):
            publish(self.path, self.identity, commit, lambda: self._present(commit.number))

    def _present(self, number: int) -> list[DataFile]:
        """Return the files that the table has after a commit."""
        commits = [self.read(each) for each in range(number + 1)]
        gone = {path for commit in commits for path in commit.removed}
        return [file for commit in commits for file in commit.files if file.path not in gone]

    def _remove(self, commit: Commit) -> None:
        """Take away what a commit replaces, once the others are seen to be there."""
        for file in commit.files if commit.removed else ():
            is_there = self.place(file).exists() or (self.path / file.path).exists()
            if not is_there and not self._is_removed_after(commit, file):
                raise TableError(f"{self.path / file.path}: committed, but its rows are gone")
        for name in commit.removed:
            (self.path / name).unlink(missing_ok=True)

    def _is_removed_after(self, commit: Commit, file: DataFile) -> bool:
        """Whether a later commit takes a file away again: it was in its place before that."""
        number = commit.number + 1
        while self._path_of(number).exists():
            if file.path in self.read(number).removed:
                return True
            number += 1
        return False


def _numbers(folder: Path) -> Sequence[str]:
    try:
        return [path.name for path in folder.iterdir() if path.name[0].isdecimal()]
    except FileNotFoundError:
        return []


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _made_anew(before: Commit, now: Commit) -> bool:
    """Whether a commit has rows of another topic of some name than the table had."""
    known = before.incarnations
    return any(not one.is_same(known.get(place, one)) for place, one in now.incarnations.items())
