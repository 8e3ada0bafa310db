"""The blocking producer of transactions."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Self

from imago_client.core.sending import sending, transacting
from imago_client.core.sending.transacting import CHECKS_MAX, HEARTBEAT_S, Decision
from imago_client.errors import ClientError
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.config import ProducerConfig
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import Message, SendResult
    from imago_client.received import ReceivedMessage
    from imago_wire.remoting.command import RemotingCommand

    Checker = Callable[[ReceivedMessage], Decision]

log = logging.getLogger(__name__)


class OpenTransaction:
    """One message that nobody reads yet: `commit` or `rollback` it.

    Who does neither is asked by the broker, through the producer's checker.
    """

    def __init__(self, producer: TransactionProducer, sent: SendResult) -> None:
        self._producer = producer
        self.sent = sent
        """Where the half message is; a commit gives the message a place of its own."""

    def commit(self) -> None:
        """Have the message delivered, once. It may be said again after an error."""
        self._producer._end(self.sent, Decision.COMMIT)  # noqa: SLF001  its producer made it

    def rollback(self) -> None:
        """Have the message never delivered. It may be said again after an error."""
        self._producer._end(self.sent, Decision.ROLLBACK)  # noqa: SLF001  as above


class TransactionProducer:
    """Sends messages in transactions; made by `Client.transaction_producer`.

    There is no thread: brokers' questions about transactions that were left open, of this producer
    or of another of its group, are answered while `poll` runs, by `checker`, called with the
    message. Whatever it raises counts as UNKNOWN, and so does what is no Decision: the broker asks
    again.
    """

    def __init__(
        self,
        state: ClientState,
        driver: BlockingDriver,
        config: ProducerConfig,
        checker: Checker,
        forget: Callable[[TransactionProducer], None],
    ) -> None:
        self._state, self._driver, self.config = state, driver, config
        self._checker, self._forget = checker, forget
        self._rotations = sending.Rotations(state.rng.getrandbits(16))
        self._topics: set[str] = set()
        self._questions: deque[tuple[str, RemotingCommand]] = deque()
        self._beat_at = float("-inf")

    def begin(self, message: Message, *, queue: MessageQueue | None = None) -> OpenTransaction:
        """Send a message that nobody reads before its transaction is committed.

        The errors are those of `Producer.send`; of BrokerError also too many open transactions.
        """
        outgoing = transacting.prepare_half(self._state, self.config, message)
        sent = self._driver.run(
            sending.send(self._state, self.config, self._rotations, outgoing, queue)
        )
        if message.topic not in self._topics:
            self._topics.add(message.topic)  # now at the latest the topic has brokers
            self._beat()
        self._keep_beating()
        return OpenTransaction(self, sent)

    def poll(self, timeout_s: float = 1.0) -> int:
        """Answer brokers that ask about open transactions; return how many were decided.

        Returns once some are decided, at the latest after `timeout_s`. It hears brokers of topics
        that this producer has sent to; poll at least every minute, or they forget it.
        """
        deadline = self._state.clock_s() + timeout_s
        while True:
            self._keep_beating()
            decided = self._answer_questions()
            left_s = deadline - self._state.clock_s()
            if decided or left_s <= 0:
                return decided
            try:
                self._driver.listen(min(left_s, HEARTBEAT_S))
            except ClientError as error:
                log.warning("connection_lost group=%s error=%s", self.config.group, error)
                self._beat()  # brokers ask over connections that told them of this producer

    def close(self) -> None:
        """Be asked no more. What is open stays open for the others of the group."""
        self._forget(self)
        self._questions.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def asked(self, address: str, command: RemotingCommand) -> None:
        """Keep a broker's question for the next poll."""
        if len(self._questions) < CHECKS_MAX:
            self._questions.append((address, command))

    def _answer_questions(self) -> int:
        decided = 0
        while self._questions:
            decided += self._answer(*self._questions.popleft())
        return decided

    def _answer(self, address: str, command: RemotingCommand) -> bool:
        """Return whether the checker has decided and the broker has the decision."""
        try:
            asked, message = transacting.read_check(command)
            decision = transacting.judge(self.config, self._checker(message))
        except ProtocolError as error:
            log.warning("transaction_check_unreadable broker=%s error=%s", address, error)
            return False
        except Exception:
            log.exception("transaction_checker_failed group=%s", self.config.group)
            return False  # the broker asks again
        if decision is Decision.UNKNOWN:
            return False
        try:
            self._driver.run(transacting.answer_check(self.config, address, asked, decision))
        except ClientError as error:
            log.warning("transaction_check_unanswered broker=%s error=%s", address, error)
            return False
        return True

    def _end(self, sent: SendResult, decision: Decision) -> None:
        self._driver.run(transacting.end(self._state, self.config, sent, decision))

    def _keep_beating(self) -> None:
        if self._topics and self._state.clock_s() >= self._beat_at:
            self._beat()

    def _beat(self) -> None:
        self._beat_at = self._state.clock_s() + HEARTBEAT_S
        operation = transacting.heartbeat(self._state, self.config, sorted(self._topics))
        for error in self._driver.run(operation):
            log.warning("heartbeat_failed group=%s error=%s", self.config.group, error)
