"""The short way of AckMessage: handles of this broker that count, without requests of remoting.

All entries of a call are acknowledged in one go, and its answer is made with them. What has to be
refused, or looked at more closely, goes the careful way.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from imago_broker.processors.grpc import checks
from imago_broker.processors.grpc.asking import AskedResult
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.consuming import acknowledging, receipts
from imago_broker.processors.rocketmq.needs import needs_to_consume
from imago_broker.service.serving_rules import Asks
from imago_wire.grpc.messages import make, parse
from imago_wire.grpc.scanning.twins import plain_acks
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.ports import Clock
    from imago_broker.processors.grpc.authentication import CallUsers
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.grpc.consuming.renewals import PushRenewals
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.service.groups.channel import Reply

NAMES_KEPT_MAX = 1024
"""Pairs of topics and groups that are known to be right."""


class Receipts(Protocol):
    """What keeps messages that are out."""

    def acknowledge_now(
        self,
        group: str,
        topic: str,
        offsets: Mapping[tuple[int, int], Sequence[int]],
        done: Callable[[Reply], None],
    ) -> bool:
        """Acknowledge messages by queue and stamp; False: one of them has to be refused."""
        ...


class PlainAcks:
    """Takes ordinary acknowledgements."""

    def __init__(
        self,
        users: CallUsers,
        table: Table,
        out: Receipts,
        clock: Clock,
        *,
        broker_name: str,
        renewals: PushRenewals,
    ) -> None:
        """`table` serves what goes the careful way, in the same lane."""
        self._users, self._table, self._out = users, table, out
        self._clock, self._renewals = clock, renewals
        self._broker_name = broker_name.encode()
        self._lane = table.lanes["client"]

    def take(self, call: Call, data: bytes) -> bool:
        """Acknowledge what a request names; False: it goes the careful way."""
        lane, client, renewals = self._lane, call.key, self._renewals
        if not self._serves():
            return False
        kept = renewals.has(client)
        found = plain_acks(
            data,
            self._broker_name,
            self._clock.epoch_ms(),
            (acknowledging.ENTRIES_MAX, receipts.HANDLE_SIZE_MAX),
            named=kept,
        )
        if found is None:
            return False
        group, topic, offsets, handles, answer = found
        if not self._may(call, topic, group) or not renewals.as_given(client, group, handles):
            return False

        def done(reply: Reply) -> None:
            lane.running -= 1
            if reply.code == ResponseCode.SUCCESS:
                call.send_framed(answer)
            else:
                _refuse(call, data, reply)

        if not self._out.acknowledge_now(group, topic, offsets, done):
            return False
        lane.running += 1
        for handle in handles:
            renewals.drop(client, group, handle)
        return True

    def _serves(self) -> bool:
        """Whether requests are served here now without anybody who has to see them."""
        table = self._table
        if table.watched or self._lane.full:
            return False
        return table.serving_rules is None or table.serving_rules.refusal(Asks.CHANGE) is None

    def _may(self, call: Call, topic: str, group: str) -> bool:
        needs = needs_to_consume((topic, group))
        return are_names(topic, group) and self._users.grant(call, needs)


@lru_cache(maxsize=NAMES_KEPT_MAX)
def are_names(topic: str, group: str) -> bool:
    """Whether clients may name a topic and a group so."""
    try:
        checks.topic_name(make("Resource", name=topic))
        checks.group_name(make("Resource", name=group))
    except CallError:
        return False
    return True


def _refuse(call: Call, data: bytes, reply: Reply) -> None:
    """Say of each entry that it was not written, and why."""
    entries = parse("AckMessageRequest", data).entries
    acks = acknowledging.Acks(call, [(one.message_id, one.receipt_handle) for one in entries])
    outcome = AskedResult(reply.code, reply.remark or "", {}, b"", denied=False)
    for index in range(len(entries)):
        acks.taking(index)(outcome.error())
