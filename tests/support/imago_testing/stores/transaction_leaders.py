"""What stands behind transactions of RocketMQ's producers, over a store in memory."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from imago_broker.config.live import LiveSettings
from imago_broker.config.sections.sections import RocketmqSection
from imago_broker.core.transactions.transactions import Outcome
from imago_broker.processors.rocketmq.exchange import Lane
from imago_broker.processors.rocketmq.send.end_transaction_path import EndPath
from imago_broker.service.delays.levels.levels import DelayService
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.transactions.checks import TransactionChecks
from imago_broker.service.transactions.service import TransactionService
from imago_testing.stores.bare_brokers import BareBroker
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import FRAME_BYTES_MAX, encode_frame
from imago_wire.remoting.headers.send import EndTransactionRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_log import MessageStore
    from imago_testing.virtual.clocks import ManualClock

INTERVAL_MS = 1000
SETTINGS = RocketmqSection(
    transaction_timeout_ms=500,
    transaction_check_interval_ms=INTERVAL_MS,
    transaction_checks_max=1000,
)


@dataclass
class TransactionCase:
    """One transaction, as its producer knows it."""

    name: str
    outcome: Outcome
    offset: int = -1
    log_offset: int = -1
    sent_end: int = 0
    """End of the log when the half message was answered."""
    ended_end: int = 0
    """The same when the outcome was answered; 0: it was not."""
    confirmed: bool = False


class TransactionLeader(BareBroker):
    """What stands behind transactions, over one data folder, for one life of its leader."""

    def __init__(self, store: MessageStore, clock: ManualClock) -> None:
        super().__init__(store, clock, topics={"T": 1})
        loop = self.event_loop
        self.delay = DelayService(self.messages, self.topics, loop=loop, clock=clock)
        settings = LiveSettings(SETTINGS)
        self.transactions = TransactionService(
            self.messages, self.topics, self.delay, loop=loop, clock=clock, settings=settings
        )
        self.asked: list[tuple[int, int]] = []
        clients = SimpleNamespace(
            producers=lambda _group: {self: None}, may_publish=lambda _client, _topic: True
        )
        self.checks = TransactionChecks(
            transactions=self.transactions,
            messages=self.messages,
            clients=cast("Any", clients),
            loop=loop,
            clock=clock,
            settings=settings,
            broker_name="b",
        )
        self.lane = Lane("transaction", 1000)
        table = SimpleNamespace(hooks=(), watched=False, serving_rules=None)
        self.ends = EndPath(self.transactions, self.lane, cast("Any", table))
        self.transactions.half_tail()
        self.messages.when_visible(self.store.log_end, self.transactions.start)

    is_open = True

    def end_straight(
        self, case: TransactionCase, outcome: Outcome, ended: Callable[[PutStatus | str], None]
    ) -> bool:
        """Report an outcome as it comes over the wire; false: it needs a closer look."""
        request = EndTransactionRequestHeader(
            producer_group="P",
            tran_state_table_offset=case.offset,
            commit_log_offset=case.log_offset,
            commit_or_rollback=8 if outcome is Outcome.COMMITTED else 12,
            msg_id=case.name,
        )
        frame = encode_frame(RemotingCommand(37, 0, 1, 479, ext=request.to_ext()))
        session = SimpleNamespace(
            grants=None,
            stored=lambda _answers: ended(PutStatus.OK),
            reply=lambda _request, reply: ended(str(reply.code)),
        )
        running = self.lane.running
        used = self.ends.take(cast("Any", session), frame, 0, FRAME_BYTES_MAX)
        assert used in (0, len(frame))
        assert self.lane.running == running + bool(used)
        return bool(used)

    def notify(self, _code: int, ext: Mapping[str, str], _body: bytes) -> None:
        """Be the producer that is asked."""
        self.asked.append((int(ext["tranStateTableOffset"]), int(ext["commitLogOffset"])))
