"""One member of a consumer group, driven by the caller's own calls to `poll`."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Self

from imago_client.checks import check_kind, check_seconds, check_whole
from imago_client.core.consuming import membership, pulling
from imago_client.core.consuming.inflation import InflationBudget
from imago_client.core.consuming.process_queue import ProcessQueue
from imago_client.core.consuming.steering import PausedQueues, Reassigned, check_read
from imago_client.core.consuming.subscriptions import group_subscriptions
from imago_client.core.routing import MASTER_ID
from imago_client.errors import ClientError, UsageError
from imago_client.handlers import check_listener
from imago_client.messages import DELAY_LEVEL_MAX, PullStatus
from imago_client.received import ReceivedMessage, cut, inflated, log_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.config import ConsumerConfig
    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.received import Pulled

log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.01
_PAUSE_S_MAX: Final = 0.5


class GroupConsumer:
    """Balances, reads and commits whenever the caller polls; made by `Client.group_consumer`.

    There is no thread: heart beats go out while `poll` runs, so poll at least every minute, or
    the brokers give this member's queues to the others. Calling `poll` again says that the
    messages of the last call are done; `retry` hands one back instead. As ever in a group, a
    message may come twice, never not at all.
    """

    def __init__(
        self,
        state: ClientState,
        driver: BlockingDriver,
        config: ConsumerConfig,
        topics: Mapping[str, str],
        on_close: Callable[[GroupConsumer], None],
        *,
        on_assigned: Callable[[tuple[MessageQueue, ...]], object] | None = None,
        on_revoked: Callable[[tuple[MessageQueue, ...]], object] | None = None,
    ) -> None:
        if config.orderly:
            raise UsageError("orderly: only the asyncio consumer locks queues")
        check_listener("on_assigned", on_assigned)
        check_listener("on_revoked", on_revoked)
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._state, self._driver, self.config, self._on_close = state, driver, config, on_close
        self._subscriptions = group_subscriptions(topics, config.group, state.clock_ms())
        self._readers: dict[MessageQueue, ProcessQueue] = {}
        self._offsets: dict[MessageQueue, int] = {}
        self._read_from: dict[MessageQueue, int] = {}
        self._handed: dict[MessageQueue, list[ReceivedMessage]] = {}
        self._known = membership.KnownQueues()
        self._paused = PausedQueues()
        self._reassigned = Reassigned()
        self._inflation = InflationBudget(config.inflated_bytes_max)
        self._turn = 0
        self._resting: dict[str, float] = {}
        """Shards that failed a moment ago, until when: one queue tells for all of them."""
        self._beat_at = self._balance_at = float("-inf")
        self._commit_at = state.clock_s() + config.commit_s
        self._is_joined = False

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member reads now, sorted."""
        return tuple(sorted(self._readers))

    def poll(self, timeout_s: float = 1.0, *, messages_max: int = 256) -> list[ReceivedMessage]:
        """Return messages of this member's queues, none if none came in time.

        At most `messages_max`: take no more than you handle within a minute.

        ClientError: no broker of the topics could be told that this member lives.
        """
        check_seconds("timeout_s", timeout_s)
        check_whole("messages_max", messages_max, 1)
        self._finish_handed()
        deadline = self._state.clock_s() + timeout_s
        pause_s = _PAUSE_S
        while True:
            with self._state.impatient():
                self._keep_up()
                found = self._take_all(messages_max)
            if found:
                return found
            left_s = deadline - self._state.clock_s()
            if left_s <= 0:
                return []
            time.sleep(min(pause_s, left_s))
            pause_s = min(_PAUSE_S_MAX, 2 * pause_s)

    def retry(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have a polled message delivered again later, or below 0 put with the dead letters."""
        check_kind("message", message, ReceivedMessage)
        check_whole("delay_level", delay_level, -(1 << 31), DELAY_LEVEL_MAX)
        self._driver.run(membership.send_back(self._state, self.config, message, delay_level))

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """The queues that are paused, sorted."""
        return self._paused.listed()

    def pause(self, *queues: MessageQueue) -> None:
        """Return nothing of these queues for now. UsageError: this member does not read one."""
        self._paused.pause(queues, self._readers)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with queues that were paused; a queue that goes to another member is resumed."""
        self._paused.resume(queues)

    def positions(self) -> dict[MessageQueue, int]:
        """Return up to where each queue is consumed: what the next commit says."""
        return {queue: process.commit_offset for queue, process in self._readers.items()}

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in a queue that this member reads; the group's offset moves at once.

        What the last poll returned of it counts no more. UsageError: it is not read now.
        """
        check_whole("offset", offset, 0)
        check_read(queue, self._readers)
        self._handed.pop(queue, None)
        self._readers.pop(queue).release()
        self._read(queue, offset)
        self._commit_one(queue, offset)

    def commit(self) -> None:
        """Say that the messages of the last poll are done, and commit now."""
        self._resting.clear()
        self._finish_handed()
        self._commit_all()
        self._commit_at = self._state.clock_s() + self.config.commit_s

    def close(self) -> None:
        """Leave the group. What the last poll returned counts as done only if committed."""
        self._on_close(self)
        if not self._is_joined:
            return
        self._resting.clear()
        self._commit_all()
        self._reassigned.went(self._readers)
        self._readers.clear()
        self._paused.clear()
        self._tell()
        subscriptions = self._subscriptions.values()
        self._driver.run(membership.unregister(self._state, self.config, subscriptions))

    def rebalance_soon(self) -> None:
        """Balance at the next poll: the broker said that the group's members changed."""
        self._balance_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _finish_handed(self) -> None:
        for queue, messages in self._handed.items():
            if process := self._readers.get(queue):
                process.finish(messages)
        self._handed.clear()

    def _keep_up(self) -> None:
        """Do what is due: heart beat, balance, commit."""
        now = self._state.clock_s()
        if now >= self._beat_at:
            self._beat()
        if now >= self._balance_at:
            self._balance_at = now + self.config.rebalance_s
            for topic in self._subscriptions:
                self._balance(topic)
            self._tell()
        if now >= self._commit_at:
            self._commit_at = now + self.config.commit_s
            self._commit_all()

    def _beat(self) -> None:
        subscriptions = self._subscriptions.values()
        if not self._is_joined:
            self._driver.run(
                membership.check_filters(self._state, self.config.group, subscriptions)
            )
        errors = self._driver.run(membership.heartbeat(self._state, self.config, subscriptions))
        if errors and not self._is_joined:
            raise errors[0]
        for error in errors:
            log.warning("heartbeat_failed group=%s error=%s", self.config.group, error)
        self._is_joined = True
        self._beat_at = self._state.clock_s() + self.config.heartbeat_s

    def _balance(self, topic: str) -> None:
        self._state.drop_route(topic)
        try:
            mine = self._driver.run(membership.assignment(self._state, self.config.group, topic))
            if mine is None:
                self._beat_at = float("-inf")  # the brokers do not know this member
                return
            self._known.note(self._state, topic)
            read_now = {queue for queue in self._readers if queue.topic == topic}
            for queue in read_now - set(mine):
                given = self._readers.pop(queue)
                given.release()
                self._commit_one(queue, given.commit_offset)
            self._paused.resume(read_now - set(mine))
            self._reassigned.went(read_now - set(mine))
            for queue in sorted(set(mine) - read_now):
                self._begin(queue)
        except ClientError as error:
            log.warning("rebalance_failed group=%s error=%s", self.config.group, error)

    def _begin(self, queue: MessageQueue) -> None:
        """Read a queue, or try again soon where its shard does not say from where."""
        if not self._rests(queue):
            is_new = self._known.is_new(queue)
            start = membership.start_offset(self._state, self.config, queue, is_new=is_new)
            try:
                offset = self._driver.run(start)
            except ClientError as error:
                log.warning("start_failed queue=%s error=%s", queue, error)
                self._rest(queue)
            else:
                self._read(queue, offset)
                self._reassigned.came(queue)
                return
        soon = self._state.clock_s() + self.config.error_pause_s
        self._balance_at = min(self._balance_at, soon)

    def _read(self, queue: MessageQueue, offset: int) -> None:
        self._readers[queue] = ProcessQueue(offset, self._inflation)
        self._offsets[queue] = offset

    def _tell(self) -> None:
        """Tell the listeners what went and what came."""
        went, came = self._reassigned.taken()
        for listen, queues in ((self._on_revoked, went), (self._on_assigned, came)):
            if listen is not None and queues:
                try:
                    listen(queues)
                except Exception:
                    log.exception("listener_failed group=%s", self.config.group)

    def _rest(self, queue: MessageQueue) -> None:
        """Leave a queue's shard alone for a while: it has no master, or does not answer."""
        self._resting[queue.shard] = self._state.clock_s() + self.config.error_pause_s

    def _rests(self, queue: MessageQueue) -> bool:
        return self._state.clock_s() < self._resting.get(queue.shard, float("-inf"))

    def _take_all(self, count_max: int) -> list[ReceivedMessage]:
        """Return what was read before, or can be read now; of each queue what there is room for."""
        found: list[ReceivedMessage] = []
        for queue in self._in_turn():
            if queue in self._paused:
                continue
            if not self._readers[queue].waiting_count and not self._rests(queue):
                self._try_pull(queue)
            if taken := self._readers[queue].take(count_max - len(found)):
                self._handed[queue] = taken
                found += taken
            if len(found) == count_max:
                break
        return found

    def _try_pull(self, queue: MessageQueue) -> None:
        try:
            self._pull(queue)
        except ClientError as error:
            if times := self._state.warnings.due("pull", queue, type(error)):
                log.warning("pull_failed queue=%s times=%d error=%s", queue, times, error)
            self._read_from.pop(queue, None)
            self._rest(queue)

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
                    group=self.config.group,
                    queue=queue,
                    offset=self._offsets[queue],
                    subscription=subscription,
                    messages_max=self.config.pull_messages_max,
                    bulk_bytes=pulling.bulk_bytes(self.config.pull_messages_max),
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

    def _commit_all(self) -> None:
        for queue, process in self._readers.items():
            if not self._rests(queue):
                self._commit_one(queue, process.commit_offset)

    def _commit_one(self, queue: MessageQueue, offset: int) -> None:
        try:
            self._driver.run(pulling.commit(self._state, self.config.group, queue, offset))
        except ClientError as error:
            if times := self._state.warnings.due("commit", queue, type(error)):
                said = "commit_failed queue=%s offset=%d times=%d error=%s"
                log.warning(said, queue, offset, times, error)
            self._rest(queue)
