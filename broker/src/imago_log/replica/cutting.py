"""Cut a follower's log, and everything that came of what is cut.

Order makes a crash harmless: first the checkpoint stops promising what goes, then the views and
the metadata are cut, then the log, then the epochs. Until the log is cut the cut has not happened:
a start reads it again to its old end and makes the views anew from the lowered checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from imago_log.disk.files import fatal, read_whole, replace_whole
from imago_log.metadata.state import META_TOPIC, Metadata, decode_changes
from imago_log.repair.inspecting import find_damage
from imago_log.views.lost import is_lost, lost_from
from imago_wire.hot import view_record
from imago_wire.layout import UNIT

if TYPE_CHECKING:
    from imago_log.lifecycle.parts import Parts
    from imago_log.metadata.state import Change

_UNITS_AT_ONCE = 1024


class Cut(NamedTuple):
    """What has happened to topics and other metadata."""

    changes: list[Change]
    ended: list[str]
    """Topics whose queues are no longer valid."""


def cut(parts: Parts, end: int, state: Metadata | None) -> Cut:
    """Cut at a record border; `state` is `metadata_at` it, None where no change of metadata goes.

    The worker is idle.
    """
    parts.log.sync()  # the snapshot that is written here must not be ahead of the log
    _lower_marks(parts, end)
    parts.queues.truncate(end, parts.metadata.topics)
    _forget_lost_ends(parts)
    parts.materialiser.truncate()
    parts.keys.truncate(end)
    parts.recent.clear()
    made = Cut(*parts.metadata.become(state)) if state is not None else Cut([], [])
    _cut_producers(parts, end)
    if parts.metadata.end <= parts.log.end:  # else it is of a snapshot that is still ahead
        parts.metadata.end = min(parts.metadata.end, end)
        save_metadata(parts, end)
    parts.log.truncate(end)
    parts.damage.truncate(end)
    parts.damage.save()
    parts.epochs.truncate(end)
    return made


def _forget_lost_ends(parts: Parts) -> None:
    """Let no queue end in lost messages: which of them were cut off, nothing tells.

    The next record of a queue, or the healed one, says again how many there are.
    """
    if not parts.damage.ranges:
        return
    topics = parts.metadata.topics
    for name, queue_id in parts.queues.on_disk():
        if name in topics:
            parts.queues.get(topics[name], queue_id)
    for queue in parts.queues:
        kept = lost_from(queue, queue.end)
        if kept < queue.end:
            queue.truncate(kept)


def trust_views(parts: Parts) -> None:
    """Say that the views on the device are those of the checkpoint."""
    parts.checkpoint.write(parts.checkpoint_now())
    replace_whole(parts.vfs, parts.folder.views_mark, b"1\n")


def empty(parts: Parts, start: int) -> Cut:
    """Let everything go and begin at `start`.

    The worker is idle. The views are not trusted until the metadata have come. A crash leaves the
    old log, a part of its front, or an empty one that begins where it began or at `start`.
    """
    parts.folder.forget_views()
    _lower_marks(parts, parts.log.start)
    with fatal("remove", parts.folder.metadata):  # one beyond the log's end would be the leader's
        parts.vfs.unlink(parts.folder.metadata)
        parts.vfs.sync_folder(parts.folder.config)
    parts.log.remove_all()
    parts.epochs.truncate(0)
    nothing = Metadata()
    made = Cut(*parts.metadata.become(nothing))
    parts.metadata.take_producers(nothing)
    parts.damage.truncate(0)
    parts.damage.save()
    parts.materialiser.forget()
    parts.queues.drop_all(keep_tails=True)
    parts.queues.discard_below(parts.folder.metaq)
    for folder in (parts.folder.queues, parts.folder.positions, parts.folder.metaq):
        with fatal(
            "sync", folder
        ):  # of units below the log's start nothing tells that they are old
            parts.vfs.sync_folder(folder)
    parts.keys.reset(start)
    parts.recent.clear()
    parts.log.begin_at(start)
    parts.metadata.end = start
    parts.queues.limit = parts.views_synced = parts.metadata_synced = parts.watermark = start
    parts.keys_synced = (start, 0)
    parts.checkpoint.write(parts.checkpoint_now())
    return made


def metadata_at(parts: Parts, end: int) -> Metadata | None:
    """Return the state at a log offset: the last snapshot, or nothing, and the changes since.

    None: it is that of the log's end, or one that is ahead of the log.
    """
    if parts.metadata.end > parts.log.end or not _changes_behind(parts, end):
        return None
    state = _snapshot(parts)
    if state is None or state.end > end:
        state = Metadata()
    queue = parts.queues.get(state.builtin[META_TOPIC], 0)
    start = max(state.end, parts.log.start)
    offset = queue.search(queue.min_offset(parts.log.start), queue.end,
                          lambda at: queue.unit(at)[0] < start)  # fmt: skip
    while offset < queue.end:
        units = queue.units(offset, min(_UNITS_AT_ONCE, queue.end - offset))
        offset += _UNITS_AT_ONCE
        for place, size, _ in UNIT.iter_unpack(units):
            if place < end and is_lost(parts.damage, place, size):
                parts.metadata_unsure = True
            elif place < end:
                record = parts.records.whole(place)
                if record is None:
                    _note_damage(parts, place)
                    continue
                view = view_record(record)
                body = record[view.body_at : view.body_at + view.body_size]
                state.apply(decode_changes(body), place)
    state.end = end
    return state


def _note_damage(parts: Parts, place: int) -> None:
    """Note what keeps a change of metadata from being read: the leader is asked for all of them."""
    found = find_damage(parts.log, place, parts.log.end, parts.witness)
    if found is not None:
        parts.damage.add(*found)
    parts.metadata_unsure = True


def _cut_producers(parts: Parts, end: int) -> None:
    metadata, queues = parts.metadata, parts.queues
    metadata.producers.truncate(
        end, lambda topic, queue_id: queues.get(metadata.topic(topic), queue_id).end
    )


def _snapshot(parts: Parts) -> Metadata | None:
    with fatal("read", parts.folder.metadata):
        data = read_whole(parts.vfs, parts.folder.metadata)
    try:
        return None if data is None else Metadata.from_snapshot(data)
    except (ValueError, KeyError, TypeError):
        return None  # damaged: the log has it all


def _changes_behind(parts: Parts, end: int) -> bool:
    """Whether a change of metadata stands at or behind a log offset."""
    queue = parts.queues.get(parts.metadata.builtin[META_TOPIC], 0)
    return queue.end > queue.first and queue.unit(queue.end - 1)[0] >= end


def _lower_marks(parts: Parts, end: int) -> None:
    """Promise no more than what stays; durably, before anything goes."""
    log = parts.log
    parts.watermark = min(parts.watermark, end)
    parts.views_synced = min(parts.views_synced, end)
    if parts.keys_synced[0] > end:
        parts.keys_synced = (end, min(parts.keys_synced[1], parts.keys.count_below(end)))
    parts.metadata_synced = min(parts.metadata_synced, end)
    checkpoint = replace(parts.checkpoint_now(), log_end=end, durable_end=min(log.durable_end, end))
    parts.checkpoint.write(checkpoint)


def save_metadata(parts: Parts, end: int) -> None:
    """Put the state of now, as that of a log offset, in the place of the snapshot."""
    replace_whole(parts.vfs, parts.folder.metadata, parts.metadata.snapshot_at(end))
    parts.metadata_synced, parts.snapshot_version = end, parts.metadata.snapshot_version
