"""How a consumer goes through messages: what it has seen, what it leaves out, when it gives up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from imago_client.metaq.values import MetaqMessage

SEEN_IDS_MAX: Final = 4096
"""Of the original; a message that comes again within so many is passed over."""

MessageFilter = Callable[[str, "MetaqMessage"], bool]
"""(group, message) → whether the group wants it."""


class SeenIds:
    """The ids of the newest messages that were handled."""

    def __init__(self, count_max: int = SEEN_IDS_MAX) -> None:
        self._count_max = count_max
        self._ids: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._ids

    def add(self, message_id: int) -> None:
        self._ids[message_id] = None
        self._ids.move_to_end(message_id)
        if len(self._ids) > self._count_max:
            self._ids.popitem(last=False)


def is_wanted(
    message: MetaqMessage,
    group: str,
    seen: SeenIds,
    message_filter: MessageFilter | None,
    failed: Callable[[MetaqMessage, Exception], None],
) -> bool:
    """Return whether a message goes to the handler; a filter that raises does not want it."""
    if message.message_id in seen:
        return False
    if message_filter is None:
        return True
    try:
        return message_filter(group, message)
    except Exception as error:
        failed(message, error)
        return False
