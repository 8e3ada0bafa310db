"""Asking producers what became of transactions that they left open.

In every round each half message that is older than its immunity is asked about, over a connection
of any live producer of its group. One that was asked about often enough, or is as old as the oldest
file of the log may be, is given up, immune or not: the log keeps all that is open. A round is made
in slices, so that other requests get in between, and a producer that does not read what it was sent
is not asked more.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from imago_broker.core.transactions.transactions import Outcome
from imago_broker.model import names
from imago_broker.service.transactions.transaction_log import (
    NoHalf,
    group_of,
    immunity_ms,
    read_half,
    unique_of,
)
from imago_wire.hot import Half
from imago_wire.record_format import properties as props
from imago_wire.records.record import StoredMessage
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.headers.send import CheckTransactionStateRequestHeader
from imago_wire.remoting.messages import encode_message

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.ports import Clock
    from imago_broker.service.groups.channel import Channel
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.transactions.service import TransactionService

logger = logging.getLogger(__name__)

SLICE = 64
SLICE_BYTES = 1 << 20
SLICE_PAUSE_MS = 5
FOREVER_MS = 1 << 62


@dataclass(slots=True, kw_only=True, eq=False)
class TransactionChecks:
    """The rounds of one broker. They begin when it is known what is open."""

    transactions: TransactionService
    messages: MessageService
    clients: ClientRegistry
    loop: asyncio.AbstractEventLoop
    clock: Clock
    settings: LiveSettings[RocketmqSection]
    broker_name: str
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _left: Iterator[int] = field(default=iter(()), init=False)
    _turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.transactions.on_ready.append(self._wait)
        self.transactions.on_stop.append(self._stop)

    def recognise(self, offset: int, half: StoredCopy) -> None:
        """Note whose a half message of the log is, and from when on it is asked about."""
        immunity, limited = immunity_ms(
            half.properties, self.settings.current.transaction_timeout_ms
        )
        immunity = self.transactions.bounded_immunity_ms(immunity)
        age_ms = max(0, self.clock.epoch_ms() - half.store_ms)
        until_ms = self.clock.monotonic_ms() + max(0, immunity - age_ms)
        unique = unique_of(half.properties).encode()
        known = Half(offset, half.physical_offset, group_of(half), unique, until_ms, limited)
        self.transactions.halves.recognise(known)

    def _wait(self) -> None:
        self._stop()
        interval_ms = self.settings.current.transaction_check_interval_ms
        self._timer = self.loop.call_later(interval_ms / 1000, self._begin_round)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_round(self) -> None:
        self._left = iter(tuple(self.transactions.halves))
        self._slice()

    def _slice(self) -> None:
        """Check some half messages, then let others have their turn."""
        halves, now_ms = self.transactions.halves, self.clock.monotonic_ms()
        size, seen = 0, False
        first = self.messages.store.queue_range(names.HALF_TOPIC, 0)[0]
        for offset in islice(self._left, SLICE):
            seen = True
            # One whose record is gone stays open no longer, whatever immunity it had asked for.
            if halves.due(offset, now_ms if offset >= first else FOREVER_MS):
                try:
                    size += self._look(offset, now_ms)
                except Exception:  # whatever it is: those behind it are asked
                    logger.exception("transaction_check_failed offset=%d", offset)
            if size >= SLICE_BYTES:
                break
        if seen:
            self._timer = self.loop.call_later(SLICE_PAUSE_MS / 1000, self._slice)
        else:
            self.transactions.note()
            self._wait()

    def _look(self, offset: int, now_ms: int) -> int:
        """Ask about one half message, or give it up; return how many bytes that took."""
        transactions = self.transactions
        copy = read_half(self.messages.store, offset)
        if copy is NoHalf.LOST:
            transactions.lose(offset)
            return 0
        if copy is NoHalf.LATER:
            return 0  # the next round asks
        self.recognise(offset, copy)
        half = transactions.halves.get(offset)
        if half is None or not transactions.halves.due(offset, now_ms):
            return copy.size
        if half.checks >= self.settings.current.transaction_checks_max or self._expires(copy):
            transactions.end(offset, Outcome.GIVEN_UP, lambda _: None)
            return copy.size
        half.checks += 1
        transactions.checked()
        transactions.counts.checks += 1
        channel = self._channel(half.group, copy.text(b"REAL_TOPIC"))
        if channel is None:
            transactions.counts.unasked += 1
        else:
            channel.notify(
                RequestCode.CHECK_TRANSACTION_STATE, self._header(copy), check_body(copy)
            )
        return copy.size

    def _expires(self, half: StoredCopy) -> bool:
        """Whether it is the only reason, before the next round, that its file is kept."""
        age_max_ms = self.transactions.age_max_ms
        return age_max_ms is not None and self.clock.epoch_ms() - half.store_ms >= age_max_ms

    def _channel(self, group: str, topic: str) -> Channel | None:
        """Return the connection of a live producer, another one each time."""
        clients = self.clients
        channels = [
            channel
            for channel, client in clients.producers(group).items()
            if channel.is_open and clients.may_publish(client, topic)
        ]
        if not channels:
            return None
        self._turns += 1
        return channels[self._turns % len(channels)]

    def _header(self, half: StoredCopy) -> dict[str, str]:
        unique = half.text(b"UNIQ_KEY")
        return CheckTransactionStateRequestHeader(
            topic=half.text(b"REAL_TOPIC"),
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique,
            transaction_id=unique,
            offset_msg_id=half.offset_message_id,
            bname=self.broker_name,
        ).to_ext()


def check_body(half: StoredCopy) -> bytes:
    """Return the half message as the record of the message that it stands for."""
    queue = half.text(b"REAL_QID")
    return encode_message(
        StoredMessage(
            size=0,
            topic=half.text(b"REAL_TOPIC"),
            queue_id=int(queue) if queue.isdecimal() else 0,
            queue_offset=half.queue_offset,
            physical_offset=half.physical_offset,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_ms=half.born_ms,
            born_host=half.born_host,
            store_ms=half.store_ms,
            store_host=half.store_host,
            reconsume_times=half.reconsume_times,
            prepared_offset=0,
            body=half.body,
            body_crc=0,
            properties=props.decode(half.properties),
        )
    )
