"""The metrics of consumer groups, made again whenever Prometheus asks."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from imago_broker.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.role import RoleState
    from imago_log.store import MessageStore

SERIES_MAX: Final = 1000
"""Pairs of group and topic that are reported; of more, the first by name."""
HELP: Final = "Messages of the topic on this shard that the group has not committed."


def group_samples(role: RoleState, offsets: ConsumerOffsets, store: MessageStore) -> list[Sample]:
    """Return the lag of every group, on the master of the shard alone: nobody else counts it."""
    if not role.leads:
        return []
    return list(islice(_samples(offsets, store), SERIES_MAX))


def _samples(offsets: ConsumerOffsets, store: MessageStore) -> Iterator[Sample]:
    for group in sorted(offsets.groups()):
        for topic, committed in sorted(offsets.of_group(group).items()):
            ends = ((store.queue_range(topic, q)[1], done) for q, done in committed.items())
            labels = (("group", group), ("topic", topic))
            yield _lag(sum(max(0, end - done) for end, done in ends), labels)


def _lag(lag: int, labels: tuple[tuple[str, str], ...]) -> Sample:
    return Sample("imago_group_lag_messages", HELP, lambda: lag, "gauge", labels)
