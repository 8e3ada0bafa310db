"""The blocking requester: sends messages and waits for the replies of their consumers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_client.core.sending import requesting, sending
from imago_client.core.sending.transacting import HEARTBEAT_S
from imago_client.errors import ClientError, NoReplyError

if TYPE_CHECKING:
    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.config import ProducerConfig
    from imago_client.core.sending.requesting import AwaitedReplies, ReceivedReply
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import Message

log = logging.getLogger(__name__)


class Requester:
    """Sends requests, one at a time; made by `Client.requester`."""

    def __init__(
        self,
        state: ClientState,
        driver: BlockingDriver,
        config: ProducerConfig,
        awaited: AwaitedReplies,
    ) -> None:
        self._state, self._driver, self.config = state, driver, config
        self._awaited = awaited
        self._rotations = sending.Rotations(state.rng.getrandbits(16))
        self._beat_at = float("-inf")
        self._told_of = 0
        """How many connections the driver had opened when the brokers were told last."""

    def request(
        self, message: Message, *, timeout_s: float = 3.0, queue: MessageQueue | None = None
    ) -> ReceivedReply:
        """Send a message and return the reply that its consumer sends.

        NoReplyError: none came in `timeout_s`, in which the message may have been consumed all the
        same. The other errors are those of `Producer.send`.
        """
        outgoing, correlation_id = requesting.prepare_request(
            self._state, self.config, message, timeout_s
        )
        deadline_s = self._state.clock_s() + timeout_s
        found: list[ReceivedReply] = []
        self._awaited.expect(correlation_id, found.append)
        try:
            self._be_known()
            self._driver.run(
                sending.send(self._state, self.config, self._rotations, outgoing, queue)
            )
            while not found:
                left_s = deadline_s - self._state.clock_s()
                if left_s <= 0:
                    raise NoReplyError(message.topic, timeout_s)
                self._be_known()  # over the connections that there are now
                self._listen(left_s)
            return found[0]
        finally:
            self._awaited.forget(correlation_id)

    def _listen(self, seconds: float) -> None:
        try:
            self._driver.listen(seconds)
        except ClientError as error:
            log.warning("connection_lost group=%s error=%s", self.config.group, error)
            self._beat()

    def _be_known(self) -> None:
        if self._state.clock_s() >= self._beat_at or self._told_of != self._driver.opened:
            self._beat()

    def _beat(self) -> None:
        for error in self._driver.run(requesting.heartbeat(self._state, self.config)):
            log.warning("heartbeat_failed group=%s error=%s", self.config.group, error)
        self._beat_at = self._state.clock_s() + HEARTBEAT_S
        self._told_of = self._driver.opened
