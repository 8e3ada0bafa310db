"""What a group has not read or not done: how many messages, and since when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.admin.services import AdminServices
    from imago_broker.service.delays.waiting_messages import WaitingRetries


def lag_of(services: AdminServices, topic: str, committed: Mapping[int, int]) -> dict[str, Any]:
    """How many messages of a topic are unread here, and when the oldest of them was stored."""
    store, lag, oldest = services.store, 0, None
    for queue, offset in committed.items():
        first, end = store.queue_range(topic, queue)
        at = max(first, offset)
        if at < end:
            lag += end - at
            stored = store.store_time(topic, queue, at)
            oldest = min(filter(None, (oldest, stored)), default=None)
    return {"lag": lag, "oldest": oldest}


def retries_of(found: WaitingRetries, group: str) -> dict[str, Any]:
    """How many messages of a group wait to be tried again; `cut`: there may be more.

    They are in no queue until then: no lag has them.
    """
    return {"waiting": found.groups[group], "cut": found.cut}


def sums(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is unread on two shards, by topic."""
    found = dict(one)
    for name, theirs in other.items():
        ours = found.get(name, {"lag": 0, "oldest": None})
        oldest = min(filter(None, (ours["oldest"], theirs["oldest"])), default=None)
        found[name] = {"lag": ours["lag"] + theirs["lag"], "oldest": oldest}
    return found
