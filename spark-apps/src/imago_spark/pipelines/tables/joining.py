"""How a batch follows the last commit of a table: what joins, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_spark.errors import FencedError, TableError
from imago_spark.pipelines.tables.commits import Commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from imago_client.message_queue import MessageQueue
    from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch


def opening(where: str | Path, stands: Commit | None, epoch: int, run: str) -> Commit:
    """Return the commit with which a run begins. FencedError: one of a later epoch has begun."""
    if stands is None:
        return Commit(number=0, epoch=epoch, run=run, ends={})
    if stands.epoch > epoch:
        raise FencedError(f"{where}: a run of epoch {stands.epoch} has begun, ours is {epoch}")
    opened = replace(stands, number=stands.number + 1, epoch=epoch, run=run)
    return replace(opened, files=(), landed=(), removed=(), expired=())


def joined(last: Commit, added: StagedBatch, files: Iterable[DataFile], *, holes: bool) -> Commit:
    """Return the commit that adds a batch, its files in their places, to the last one.

    `holes`: rows before it may be missing because they are gone for good. TableError: the table has
    some of the rows already, or would lack rows before them, or has those of another topic of that
    name.
    """
    ends = _same_topics(last, added, holes=holes)
    for landed in added.landed:
        _check_joins(ends, landed, holes=holes)
    return replace(
        last,
        number=last.number + 1,
        query=added.query,
        batch=added.batch,
        rows=last.rows + added.rows,
        damaged=last.damaged + added.damaged,
        ends=ends | {one.queue: one.end for one in added.landed},
        incarnations=last.incarnations | added.incarnations,
        cluster=added.cluster or last.cluster,
        files=tuple(files),
        landed=added.landed,
        mark=added.mark,
        removed=(),
        expired=(),
    )


def _same_topics(last: Commit, added: StagedBatch, *, holes: bool) -> dict[MessageQueue, int]:
    """Return the ends to which a batch is added: not those of topics that were made anew."""
    ends = dict(last.ends)
    for queue, end in last.ends.items():
        place = (queue.topic, queue.shard)
        known, found = last.incarnations.get(place), added.incarnations.get(place)
        if known is None or found is None or known.is_same(found):
            continue
        if not holes:
            raise TableError(
                f"{queue}: the table has the offsets below {end} of another topic"
                f" {queue.topic!r}, deleted since or of another cluster: the batch has those of a"
                ' new one; give the table a new path, or set onDataLoss = "skip" to add them'
            )
        del ends[queue]
    return ends


def _check_joins(ends: Mapping[MessageQueue, int], landed: Landed, *, holes: bool) -> None:
    end = ends.get(landed.queue)
    if end is None or end == landed.start or (holes and end < landed.start):
        return
    fault = "are in the table already" if end > landed.start else "would be missing"
    low, high = sorted((end, landed.start))
    raise TableError(
        f"{landed.queue}: offsets {low} to {high - 1} {fault}: another checkpoint was used in"
        " between, or the topic was deleted and created again; give the table a new checkpoint,"
        " or a new path"
    )
