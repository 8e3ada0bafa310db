"""Which member of a group reads which queues: the rule that every member must follow alike.

RocketMQ's default strategy (AllocateMessageQueueAveragely): members and queues sorted, each
member gets one block of neighbours; the first members get one queue more when it does not divide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.message_queue import MessageQueue


def allocate_averagely(
    member: str, members: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """Return the queues of `member`; nothing while the group does not list it yet."""
    ordered = sorted(set(members))
    if member not in ordered:
        return []
    index, member_count = ordered.index(member), len(ordered)
    share, left_over = divmod(len(queues), member_count)
    start = index * share + min(index, left_over)
    return sorted(queues)[start : start + share + (1 if index < left_over else 0)]
