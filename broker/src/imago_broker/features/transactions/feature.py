"""Transactions as they plug in: request codes with their rights, metrics, and when they work."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_broker.features.feature import Feature
from imago_broker.features.transactions.transaction_requests import TransactionProcessor
from imago_broker.metrics import counter, gauge
from imago_broker.processors.rocketmq.access.rights import (
    at_field,
    both,
    by_id,
    given,
    meant,
    topic,
)
from imago_broker.processors.rocketmq.installed import Installed
from imago_broker.processors.rocketmq.needs import ALTER, PUBLISH
from imago_broker.processors.rocketmq.rows import Row
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from imago_broker.metrics import Sample
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.service.transactions.service import TransactionService


def install(parts: RocketmqAssembly) -> Installed:
    """Serve and count what the broker's transactions do."""
    transaction = TransactionProcessor(
        parts.transactions.service,
        parts.transactions.checks,
        messages=parts.broker.messages,
        clock=parts.broker.clock,
        settings=parts.settings,
    )
    service, lane = parts.transactions.service, parts.lanes.transaction
    return Installed(
        parts=parts.transactions,
        rows=[
            Row(
                Code.END_TRANSACTION,
                transaction.end,
                lane,
                Asks.CHANGE,
                elsewhere=transaction.elsewhere,
            ),
            Row(
                Code.RESUME_CHECK_HALF_MESSAGE,
                transaction.resume,
                lane,
                Asks.CHANGE,
            ),
        ],
        samples=_samples(service),
        start=service.start,
        stop=service.stop,
        needed_from=service.needed_from,
        log_shortened=service.log_shortened,
    )


def _samples(transactions: TransactionService) -> list[Sample]:
    counts = transactions.counts
    return [
        gauge(
            "transactions_open",
            "RocketMQ transactions that are open.",
            lambda: len(transactions.halves),
        ),
        counter(
            "transactions_begun",
            "RocketMQ transactions begun: half messages stored.",
            lambda: counts.opened,
        ),
        counter(
            "transactions_committed", "RocketMQ transactions committed.", lambda: counts.committed
        ),
        counter(
            "transactions_rolled_back",
            "RocketMQ transactions rolled back.",
            lambda: counts.rolled_back,
        ),
        counter(
            "transactions_given_up",
            "RocketMQ transactions given up after too many checks.",
            lambda: counts.given_up,
        ),
        counter(
            "transactions_lost",
            "RocketMQ transactions whose half messages cannot be read.",
            lambda: counts.lost,
        ),
        counter(
            "transaction_checks", "Checks of open RocketMQ transactions.", lambda: counts.checks
        ),
        counter(
            "transaction_checks_unasked",
            "Checks of RocketMQ transactions without a live producer to ask.",
            lambda: counts.unasked,
        ),
    ]


TRANSACTIONS: Final = Feature(
    rights=MappingProxyType(
        {
            # Not what the request says of its topic: the half message itself tells whose it is.
            Code.END_TRANSACTION: both(
                meant(PUBLISH, at_field("commitLogOffset")), given(topic(PUBLISH), "topic")
            ),
            Code.RESUME_CHECK_HALF_MESSAGE: both(meant(ALTER, by_id), given(topic(ALTER), "topic")),
        }
    ),
    limited={},
    install=install,
)
