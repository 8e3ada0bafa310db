"""What went of shards' logs for want of room, before it had expired: one event for each stretch."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.model.state import parsed
from imago_operator.model.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.plan.look import ClusterLook
    from imago_operator.spec.cluster.cluster_status import ClusterStatus, DeletedForRoom

DELETED_FOR_ROOM: Final = "DeletedForRoom"
CALM: Final = timedelta(hours=1)
"""What goes later than this after the last is another stretch, though it adjoins."""


def deleted_for_room(look: ClusterLook, number: int) -> DeletedForRoom | None:
    """Return what went last of a shard: what its master says, or else what was known before."""
    shard = look.shard(number)
    if shard is not None and shard.deleted_for_room is not None:
        return shard.deleted_for_room
    return _known(look.observed.status).get(number)


def stretches(before: ClusterStatus, after: ClusterStatus) -> Iterator[str]:
    """Yield what to tell of: where a stretch began since the status before."""
    old = _known(before)
    for number, went in _known(after).items():
        if went is not None and not _goes_on(old.get(number), went):
            yield _told(number, went, old.get(number))


def _known(status: ClusterStatus) -> dict[int, DeletedForRoom | None]:
    return {shard.id: shard.deleted_for_room for shard in status.shards}


def _goes_on(old: DeletedForRoom | None, went: DeletedForRoom) -> bool:
    """Whether it is the stretch that was told of already."""
    if old is None or old.start != went.start:
        return False
    return parsed(went.at) - parsed(old.at) < CALM


def _told(number: int, went: DeletedForRoom, old: DeletedForRoom | None) -> str:
    start, messages = went.start, went.messages
    if old is not None and old.start == start:
        start, messages = old.end, messages - old.messages
    return (
        f"shard-{number}: {counted(messages, 'message')} ({went.end - start} bytes of its log) went"
        f" for want of room before they had expired, up to {went.at}, and more may follow: no"
        " member in sync has room on its disk. Give the disks room (spec.storage.size), or shorten"
        " the retention; status.shards has how much goes."
    )
