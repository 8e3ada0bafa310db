"""One member of a consumer group, driven by the caller's own calls to `poll`."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Self

from imago_client.blocking.rocketmq.polled_queues import PolledQueues
from imago_client.checks import check_kind, check_seconds, check_whole
from imago_client.core.consuming import membership, pulling
from imago_client.core.consuming.following import FollowedTopics
from imago_client.core.consuming.steering import Reassigned, check_read
from imago_client.errors import ClientError, UsageError
from imago_client.handlers import check_listener
from imago_client.messages import DELAY_LEVEL_MAX
from imago_client.received import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.config import ConsumerConfig
    from imago_client.core.consuming.following import Wanted
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue

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
        topics: Wanted,
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
        self._following = FollowedTopics(topics, config.group, state.clock_ms())
        self._subscriptions = self._following.by_topic
        self._queues = PolledQueues(state, driver, config, self._subscriptions)
        self._handed: dict[MessageQueue, list[ReceivedMessage]] = {}
        self._known = membership.KnownQueues()
        self._reassigned = Reassigned()
        self._beat_at = self._balance_at = float("-inf")
        self._commit_at = state.clock_s() + config.commit_s
        self._is_joined = self._may_be_known = False

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member reads now, sorted."""
        return tuple(self._queues)

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
                self._handed = self._queues.take(messages_max)
            if self._handed:
                found = [message for taken in self._handed.values() for message in taken]
                self._state.watch.after_receive(self.config.group, found)
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
        return self._queues.paused.listed()

    def pause(self, *queues: MessageQueue) -> None:
        """Return nothing of these queues for now. UsageError: this member does not read one."""
        self._queues.paused.pause(queues, self._queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with queues that were paused; a queue that goes to another member is resumed."""
        self._queues.paused.resume(queues)

    def positions(self) -> dict[MessageQueue, int]:
        """Return up to where each queue is consumed: what the next commit says."""
        return self._queues.positions()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in a queue that this member reads; the group's offset moves at once.

        What the last poll returned of it counts no more. UsageError: it is not read now.
        """
        check_whole("offset", offset, 0)
        check_read(queue, self._queues)
        self._handed.pop(queue, None)
        self._queues.seek(queue, offset)

    def commit(self) -> None:
        """Say that the messages of the last poll are done, and commit now."""
        self._queues.retry_shards()
        self._finish_handed()
        self._queues.commit_all()
        self._commit_at = self._state.clock_s() + self.config.commit_s

    def close(self) -> None:
        """Leave the group. What the last poll returned counts as done only if committed."""
        self._on_close(self)
        if not self._may_be_known:  # a broker that did not answer in time may have been told
            return
        self._queues.retry_shards()
        self._queues.commit_all()
        self._reassigned.went(self._queues)
        self._queues.clear()
        self._tell()
        subscriptions = self._subscriptions.values()
        self._driver.run(membership.unregister(self._state, self.config, subscriptions))

    def rebalance_soon(self) -> None:
        """Balance at the next poll: the broker said that the group's members changed."""
        self._balance_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _finish_handed(self) -> None:
        for queue, messages in self._handed.items():
            self._queues.finish(queue, messages)
        self._handed.clear()

    def _keep_up(self) -> None:
        """Do what is due: heart beat, balance, commit."""
        now = self._state.clock_s()
        if now >= self._balance_at:
            self._look()
        if now >= self._beat_at:
            self._beat()
        if now >= self._balance_at:
            self._balance_at = now + self.config.rebalance_s
            for topic in list(self._subscriptions):
                self._balance(topic)
            self._tell()
        if now >= self._commit_at:
            self._commit_at = now + self.config.commit_s
            self._queues.commit_all()

    def _look(self) -> None:
        """Take the topics that a pattern matches now."""
        read = {queue.topic for queue in self._queues}
        try:
            new = self._driver.run(self._following.look(self._state, read))
        except ClientError as error:
            if not self._is_joined:
                raise
            log.warning("pattern_failed group=%s error=%s", self.config.group, error)
            return
        for topic in new if self._is_joined else ():
            self._known.appeared(topic)
        if new:
            self._beat_at = float("-inf")

    def _beat(self) -> None:
        subscriptions = self._subscriptions.values()
        if not self._is_joined:
            self._driver.run(
                membership.check_filters(self._state, self.config.group, subscriptions)
            )
        self._may_be_known = True
        beat = self._driver.run(membership.heartbeat(self._state, self.config, subscriptions))
        if not self._is_joined:
            beat.check()
        for error in beat.errors:
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
            read_now = {queue for queue in self._queues if queue.topic == topic}
            for queue in read_now - set(mine):
                self._queues.give_up(queue)
            self._reassigned.went(read_now - set(mine))
            anew = self._driver.run(self._known.made_anew(self._state, mine))
            for queue in anew & read_now:
                log.warning("topic_made_anew queue=%s group=%s", queue, self.config.group)
                first = self._driver.run(pulling.min_offset(self._state, queue))
                self._queues.seek(queue, first)
            for queue in sorted(set(mine) - read_now):
                self._begin(queue)
        except ClientError as error:
            log.warning("rebalance_failed group=%s error=%s", self.config.group, error)

    def _begin(self, queue: MessageQueue) -> None:
        """Read a queue, or try again soon where its shard does not say from where."""
        if not self._queues.rests(queue):
            is_new = self._known.is_new(queue)
            start = membership.start_offset(self._state, self.config, queue, is_new=is_new)
            try:
                offset = self._driver.run(start)
            except ClientError as error:
                log.warning("start_failed queue=%s error=%s", queue, error)
                self._queues.rest(queue)
            else:
                self._queues.read(queue, offset)
                self._reassigned.came(queue)
                return
        soon = self._state.clock_s() + self.config.error_pause_s
        self._balance_at = min(self._balance_at, soon)

    def _tell(self) -> None:
        """Tell the listeners what went and what came."""
        went, came = self._reassigned.taken()
        for listen, queues in ((self._on_revoked, went), (self._on_assigned, came)):
            if listen is not None and queues:
                try:
                    listen(queues)
                except Exception:
                    log.exception("listener_failed group=%s", self.config.group)
