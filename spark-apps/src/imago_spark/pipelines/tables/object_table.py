"""A table in a bucket: a Delta table whose log is also what its runs go by.

```
s3://BUCKET/PATH/date=2026-11-21/9f0c….parquet   rows; they count once the log names their file
s3://BUCKET/PATH/_delta_log/                     Delta's commits, one a batch, each with ours in it
```

An object store has no hard links and no renames, but it can refuse to create what exists, which is
how Delta's commits follow each other. So each of ours (`commits`) is in one of Delta's, under
`imago` of its information; its number is the version of the application transaction `imago`. Two
runs that commit the same number exclude each other: Delta refuses the second, since it has not read
the first's transaction. All else is as in a folder (`table`): a run begins with a commit that adds
nothing, after which no earlier run can commit.

Files are written to their places at once, under names of their own. Those of a run that died are in
no commit: readers of Delta do not see them, and its `vacuum` removes them.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from imago_spark.errors import FencedError, TableError
from imago_spark.pipelines.tables import delta
from imago_spark.pipelines.tables.bucket import SCHEME
from imago_spark.pipelines.tables.commits import Commit, decode, encode
from imago_spark.pipelines.tables.joining import joined, opening

if TYPE_CHECKING:
    from pathlib import Path

    from imago_spark.pipelines.tables.bucket import LakeBucket
    from imago_spark.pipelines.tables.commits import StagedBatch

NAME: Final = "imago"
COMMITS_LOOKED_AT: Final = 1000
"""Of those that others have added after ours: whoever optimizes the table."""
_KEPT: Final = {"delta.enableExpiredLogCleanup": "false"}
"""The log has what a run needs to know, however old its newest commit is."""


class ObjectTable:
    """The right of one run to write a table in a bucket. Not thread-safe."""

    def __init__(self, path: Path, bucket: LakeBucket, *, epoch: int = 0) -> None:
        self.path, self._bucket, self._epoch = path, bucket, epoch
        self._url = f"{SCHEME}{path.as_posix()}"
        self._run = uuid4().hex
        self._last: Commit | None = None
        self._log: Any = None
        """The Delta table as it was looked at last; None: there was none."""

    @property
    def last(self) -> Commit:
        """The last commit of this run, including its first."""
        if self._last is None:
            raise AssertionError("begin() comes first")
        return self._last

    def begin(self) -> Commit:
        """Exclude all earlier runs. FencedError: a later one has begun."""
        while True:
            opened = opening(self._url, self.read_last(), self._epoch, self._run)
            if self._put(opened):
                self._last = opened
                return opened

    def stage(self) -> Path:
        """Return where to write a batch's files: to their places."""
        return self.path

    def has(self, query: str, batch: int) -> bool:
        """Whether this batch is committed."""
        return self.last.query == query and batch <= self.last.batch

    def commit(self, added: StagedBatch, *, holes: bool = False) -> Commit:
        """Add a batch, as `TableWriter` does. FencedError: another run has begun."""
        placed = [replace(one, path=one.staged.partition("/")[2]) for one in added.files]
        made = joined(self.last, added, placed, holes=holes)
        stands = self.read_last()
        if stands is None or stands.run != self._run or not self._put(made):
            raise FencedError(f"{self._url}: another run has begun to write to this table")
        self._last = made
        return made

    def unstage(self, attempt: Path) -> None:
        """Leave what was staged: it is in the table, or nobody sees it."""

    def read_last(self) -> Commit | None:
        """Return the last commit of any run; None: there is none."""
        known = delta.library(self._url)
        options = self._bucket.delta_options()
        try:
            if not known.DeltaTable.is_deltatable(self._url, options):
                self._log = None
                return None
            self._log = known.DeltaTable(self._url, storage_options=options)
            number = self._log.transaction_version(NAME)
            if number is None:
                raise TableError(f"{self._url}: is a Delta table that ingest did not make")
            for one in self._log.history(COMMITS_LOOKED_AT):
                if NAME in one and (commit := decode(json.loads(one[NAME]))).number == number:
                    return commit
        except (known.DeltaError, OSError, KeyError, TypeError, ValueError) as error:
            raise TableError(f"{self._url}: {error}") from error
        raise TableError(f"{self._url}: its log lacks commit {number} of ingest")

    def _put(self, commit: Commit) -> bool:
        """Make a commit that follows the one that was read; False: another run was first."""
        known = delta.library(self._url)
        properties = known.CommitProperties(
            custom_metadata={NAME: json.dumps(encode(commit))},
            app_transactions=[known.Transaction(NAME, commit.number)],
        )
        now_ms = int(time.time() * 1000)
        actions = [delta.added(file, now_ms) for file in commit.files]
        try:
            if self._log is None:
                options = self._bucket.delta_options()
                delta.create(self._url, actions, properties, _KEPT, options)
            else:
                self._log.create_write_transaction(
                    actions, "append", delta.schema(), [delta.DAY], commit_properties=properties
                )
        except (known.DeltaError, OSError) as error:
            stands = self.read_last()
            if stands is None or stands.number < commit.number:
                raise TableError(f"{self._url}: {error}") from error
            return stands.run == self._run and stands.number == commit.number  # told too late
        return True
