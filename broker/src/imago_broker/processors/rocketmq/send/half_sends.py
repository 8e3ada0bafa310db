"""Sends that begin a transaction: stored as half messages, which nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.model.access.users import ANONYMOUS
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.service.transactions.half_messages import half_entry
from imago_broker.service.transactions.term import TransactionRefusedError
from imago_broker.service.transactions.transaction_log import immunity_ms, unique_of
from imago_wire.record_format import properties as props
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_broker.processors.rocketmq.exchange import Exchange
    from imago_broker.processors.rocketmq.send.inflating import Shape
    from imago_broker.processors.rocketmq.send.sending import Sending
    from imago_broker.service.puts.acknowledgements import Done
    from imago_broker.service.transactions.service import TransactionService
    from imago_wire.records.record import Entry
    from imago_wire.remoting.messages import BatchEntry


class HalfSends:
    """What differs between a send and one that begins a transaction."""

    def __init__(
        self, transactions: TransactionService, settings: LiveSettings[RocketmqSection]
    ) -> None:
        self._transactions, self._settings = transactions, settings

    def require_room(self, exchange: Exchange, sending: Sending) -> None:
        """Refuse one more transaction than may be open, and names too long to be kept of each.

        The fast path counts what comes next on this connection for the same owner.
        """
        group, unique = _group_of(sending), unique_of(sending.properties)
        for what, word in (("producer group", group), ("unique id", unique)):
            if problem := names.word_problem(what, word):
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, problem)
        exchange.channel.transaction_owner = sending.owner = _owner_of(exchange)
        try:
            self._transactions.require_room(group, sending.owner)
        except TransactionRefusedError as error:
            raise RequestError(ResponseCode.SYSTEM_BUSY, str(error)) from None

    def entry(
        self, sending: Sending, part: BatchEntry, shape: Shape | None, born_host: bytes
    ) -> Entry:
        """Return the entry of the half message."""
        return half_entry(
            self._transactions.half_tail(),
            topic=sending.topic,
            queue_id=sending.queue_id,
            group=sending.producer_group,
            body=part.body,
            properties=part.properties,
            flag=part.flag,
            sys_flag=sending.sys_flag,
            born_ms=sending.born_ms,
            born_host=born_host,
            shape=shape,
        )

    def put(
        self, entry: Entry, sending: Sending, level: Acknowledgement, done: Done, token: object
    ) -> None:
        """Put it; from when it is in the log its transaction is open."""
        immunity = immunity_ms(sending.properties, self._settings.current.transaction_timeout_ms)
        self._transactions.put_half(
            entry, _group_of(sending), immunity, level, done, token, owner=sending.owner
        )


def _group_of(sending: Sending) -> str:
    """Return the group of producers that is asked about a half message."""
    named = props.find(sending.properties, b"PGROUP") or sending.producer_group.encode()
    return named.decode("utf-8", "replace")


def _owner_of(exchange: Exchange) -> str:
    """Return of whose share a transaction is that a request begins."""
    user = exchange.user
    if user is None or user == ANONYMOUS:
        return f"address {exchange.channel.address}"
    return f"user {user}"
