"""The blocking pull consumer: it reads what the caller asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.blocking.faces import blocking
from imago_client.blocking.rocketmq.driver import Inline
from imago_client.checks import check_queue
from imago_client.rocketmq.pull_consumer import PullConsumer as AsyncPullConsumer

if TYPE_CHECKING:
    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.blocking.rocketmq.scan import QueueScan, ScanLimits
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue


class PullConsumer:
    """Reads queues of the caller's choice; made by `Client.pull_consumer`.

    `group` names the committed offsets. There is no balancing between members: that is what
    `Client.group_consumer` does.
    """

    def __init__(self, state: ClientState, driver: BlockingDriver, group: str) -> None:
        self._state, self._driver = state, driver
        self._face = AsyncPullConsumer(state, Inline(driver), group)
        self.group = group

    queues = blocking(AsyncPullConsumer.queues)
    lost_queues = blocking(AsyncPullConsumer.lost_queues)
    pull = blocking(AsyncPullConsumer.pull)
    check = blocking(AsyncPullConsumer.check)
    min_offset = blocking(AsyncPullConsumer.min_offset)
    max_offset = blocking(AsyncPullConsumer.max_offset)
    end = blocking(AsyncPullConsumer.end)
    shard_bounds = blocking(AsyncPullConsumer.shard_bounds)
    offset_at = blocking(AsyncPullConsumer.offset_at)
    committed = blocking(AsyncPullConsumer.committed)
    commit = blocking(AsyncPullConsumer.commit)
    lock = blocking(AsyncPullConsumer.lock)
    unlock = blocking(AsyncPullConsumer.unlock)

    def scan(
        self, queue: MessageQueue, start: int, end: int, limits: ScanLimits | None = None
    ) -> QueueScan:
        """Return an iterable of large pieces of a queue, from `start` up to `end`."""
        from imago_client.blocking.rocketmq.scan import QueueScan, ScanLimits

        check_queue(queue)
        return QueueScan(
            self._state, self._driver, self.group, queue, start, end, limits or ScanLimits()
        )
