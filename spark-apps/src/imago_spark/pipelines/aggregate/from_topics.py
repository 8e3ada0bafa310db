"""Topics as the input of figures: their messages wait in a table beside the figures.

`PATH/_imago/input` is a table of parse, or of ingest without a schema, and keeps what it promises:
each message once, whatever dies, and with a new checkpoint, too. What has been counted, and is in
no window that is still open, goes from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_spark.errors import OptionError
from imago_spark.pipelines import parse, streaming
from imago_spark.pipelines.aggregate.reading import waits_of
from imago_spark.pipelines.compact.compacting import Compaction
from imago_spark.pipelines.landing import Landing, Shape
from imago_spark.pipelines.tables.contract import claim
from imago_spark.pipelines.tables.table import REJECTS, TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from imago_spark.pipelines.compact.upkeep import StoredFile
    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.streaming import StopSignal
    from imago_spark.pipelines.tables.commits import Commit

UNNEEDED: Final = "unused"
"""What settings have for a checkpoint that nobody named."""


def shape_of(given: IngestSettings) -> Shape:
    """Return what messages become; needs a session if there is a schema. OptionError: a mistake."""
    return parse.of_settings(given).shape if "schema" in given.own else Shape()


class TopicInput:
    """Messages on their way to figures."""

    def __init__(
        self, given: IngestSettings, shape: Shape, table: TableWriter, fence: Callable[[], None]
    ) -> None:
        if given.checkpoint == UNNEEDED:
            raise OptionError(
                "checkpoint: is missing: name one, since these figures are of topics; or name a"
                " table as config.input"
            )
        self._given = replace(given, path=table.path, available_now=True)
        self._shape, self._fence = shape, fence
        self._table = TableWriter(table.path, epoch=given.epoch)

    def begin(self) -> None:
        """Make sure that the table is there, and is this run's."""
        claim(self._table, self._shape.application, self._shape.fields)
        self._table.begin()

    def take(self, spark: SparkSession, stop: StopSignal) -> None:
        """Land what the topics have now."""
        landing = Landing(self._table, self._fence, self._given, self._shape)
        streaming.land(spark, self._given, landing, stop)

    def let_go(self, figures: Commit) -> int:
        """Let rows go that no figure needs any more; return how many."""
        work = Compaction(self._given, self._fence)
        work.table.join()
        return work.expire(list(_done(work, figures)))


def _done(work: Compaction, figures: Commit) -> Iterator[StoredFile]:
    needed = {**figures.ends, **waits_of(figures.mark)}
    for number, file in work.lake.present():
        if not file.path.startswith(f"{REJECTS}/"):
            one = work.stored(number, file)
            if one.content.end <= needed.get(one.content.queue, 0):
                yield one
