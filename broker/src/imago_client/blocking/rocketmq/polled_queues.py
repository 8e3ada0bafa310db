"""The queues that a blocking member reads: each pulled when the caller polls."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_client.core.consuming import pulling
from imago_client.core.consuming.inflation import InflationBudget
from imago_client.core.consuming.process_queue import ProcessQueue
from imago_client.core.consuming.steering import PausedQueues
from imago_client.core.routing import MASTER_ID
from imago_client.errors import ClientError
from imago_client.messages import PullStatus
from imago_client.received import cut, inflated, log_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.config import ConsumerConfig
    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.received import Pulled, ReceivedMessage

log = logging.getLogger(__name__)


class PolledQueues:
    """What was read of each and not handed out yet, what is in work, and what may be committed."""

    def __init__(
        self,
        state: ClientState,
        driver: BlockingDriver,
        config: ConsumerConfig,
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        self._state, self._driver, self._config = state, driver, config
        self._subscriptions = subscriptions
        self._readers: dict[MessageQueue, ProcessQueue] = {}
        self._offsets: dict[MessageQueue, int] = {}
        self._read_from: dict[MessageQueue, int] = {}
        self.paused = PausedQueues()
        self._inflation = InflationBudget(config.inflated_bytes_max)
        self._turn = 0
        self._resting: dict[str, float] = {}
        """Shards that failed a moment ago, until when: one queue tells for all of them."""

    def __contains__(self, queue: object) -> bool:
        return queue in self._readers

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(sorted(self._readers))

    def positions(self) -> dict[MessageQueue, int]:
        """Return up to where each is consumed."""
        return {queue: process.commit_offset for queue, process in self._readers.items()}

    def finish(self, queue: MessageQueue, messages: list[ReceivedMessage]) -> None:
        """Note that messages are consumed, unless the queue has gone to another member."""
        if process := self._readers.get(queue):
            process.finish(messages)

    def give_up(self, queue: MessageQueue) -> None:
        """Read it no more, and commit it."""
        given = self._readers.pop(queue)
        given.release()
        self.paused.resume([queue])
        self.commit_one(queue, given.commit_offset)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in it, and commit that."""
        self._readers[queue].release()
        self.read(queue, offset)
        self.commit_one(queue, offset)

    def retry_shards(self) -> None:
        """Ask shards again that failed a moment ago."""
        self._resting.clear()

    def clear(self) -> None:
        """Read nothing any more."""
        self._readers.clear()
        self.paused.clear()

    def read(self, queue: MessageQueue, offset: int) -> None:
        """Read a queue from an offset on."""
        self._readers[queue] = ProcessQueue(offset, self._inflation)
        self._offsets[queue] = offset

    def rest(self, queue: MessageQueue) -> None:
        """Leave a queue's shard alone for a while: it has no master, or does not answer."""
        self._resting[queue.shard] = self._state.clock_s() + self._config.error_pause_s

    def rests(self, queue: MessageQueue) -> bool:
        """Whether its shard is left alone now."""
        return self._state.clock_s() < self._resting.get(queue.shard, float("-inf"))

    def take(self, count_max: int) -> dict[MessageQueue, list[ReceivedMessage]]:
        """Return what was read before, or can be read now; of each queue what there is room for."""
        found: dict[MessageQueue, list[ReceivedMessage]] = {}
        for queue in self._in_turn():
            if queue in self.paused:
                continue
            if not self._readers[queue].waiting_count and not self.rests(queue):
                self._try_pull(queue)
            if taken := self._readers[queue].take(count_max):
                found[queue] = taken
                count_max -= len(taken)
            if not count_max:
                break
        return found

    def _try_pull(self, queue: MessageQueue) -> None:
        try:
            self._pull(queue)
        except ClientError as error:
            if times := self._state.warnings.due("pull", queue, type(error)):
                log.warning("pull_failed queue=%s times=%d error=%s", queue, times, error)
            self._read_from.pop(queue, None)
            self.rest(queue)

    def _in_turn(self) -> list[MessageQueue]:
        """Return the queues, another one first each time: the first finds room for its bodies."""
        queues = sorted(self._readers)
        if queues:
            self._turn = (self._turn + 1) % len(queues)
        return [*queues[self._turn :], *queues[: self._turn]]

    def _pull(self, queue: MessageQueue) -> None:
        subscription = self._subscriptions[queue.topic]
        pulled = self._driver.run(
            pulling.pull(
                self._state,
                pulling.PullArguments(
                    group=self._config.group,
                    queue=queue,
                    offset=self._offsets[queue],
                    subscription=subscription,
                    messages_max=self._config.pull_messages_max,
                    bulk_bytes=pulling.bulk_bytes(self._config.pull_messages_max),
                    read_from=self._read_from.get(queue, MASTER_ID),
                ),
            )
        )
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            asked = self._offsets[queue]
            log.warning("offset_out_of_range %s", pulling.moved_text(pulled, asked))
            self._readers[queue] = ProcessQueue(pulled.next_offset, self._inflation)
        process = self._readers[queue]
        next_offset = self._take_in(process, subscription, pulled)
        self._offsets[queue] = next_offset
        self._read_from[queue] = pulled.read_from

    def _take_in(self, process: ProcessQueue, subscription: Subscription, pulled: Pulled) -> int:
        """Take messages up to a compressed one that finds no room: the next poll brings it."""
        found = cut(pulled.queue, pulled.body)
        self._state.watch.received(len(found), len(pulled.body))
        if not subscription.tags and not any(one.is_compressed for one in found):
            process.add(found, pulled.next_offset)
            return pulled.next_offset
        for raw in found:
            if not subscription.accepts(raw.tags):
                continue
            message = inflated(raw, self._inflation.free)
            too_large = message.error is not None and message.error.is_too_large
            if too_large and self._inflation.used:
                process.advance(message.offset)
                return message.offset
            if message.error is not None:
                log_unreadable(message)
            process.add([message], message.offset + 1)
        process.advance(pulled.next_offset)
        return pulled.next_offset

    def commit_all(self) -> None:
        """Commit what is consumed of each, but of shards that are left alone."""
        for queue, process in self._readers.items():
            if not self.rests(queue):
                self.commit_one(queue, process.commit_offset)

    def commit_one(self, queue: MessageQueue, offset: int) -> None:
        """Commit one queue, or log why not: it is committed again later."""
        try:
            self._driver.run(pulling.commit(self._state, self._config.group, queue, offset))
        except ClientError as error:
            if times := self._state.warnings.due("commit", queue, type(error)):
                said = "commit_failed queue=%s offset=%d times=%d error=%s"
                log.warning(said, queue, offset, times, error)
            self.rest(queue)
