"""The fast path of AckMessage: handles of this broker that count, without requests of remoting.

All entries of a call are acknowledged in one go, and its answer is made with them. What has to be
refused, or looked at more closely, goes the slow path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from imago_broker.processors.grpc.asking import AskedResult
from imago_broker.processors.grpc.consuming import acknowledging, receipts
from imago_wire.grpc.messages import parse
from imago_wire.grpc.scanning.twins import plain_acks
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.ports import Clock
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.grpc.consuming.fast_path import FastPath
    from imago_broker.service.groups.channel import Reply


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
        way: FastPath,
        out: Receipts,
        clock: Clock,
        *,
        broker_name: str,
    ) -> None:
        self._way, self._out, self._clock = way, out, clock
        self._broker_name = broker_name.encode()

    def take(self, call: Call, data: bytes) -> bool:
        """Acknowledge what a request names; False: it goes the slow path."""
        way = self._way
        if not way.serves():
            return False
        found = plain_acks(
            data,
            self._broker_name,
            self._clock.epoch_ms(),
            (acknowledging.ENTRIES_MAX, receipts.HANDLE_SIZE_MAX),
        )
        if found is None:
            return False
        group, topic, offsets, answer = found
        if not way.open_to(call, topic, group):
            return False

        def done(reply: Reply) -> None:
            way.lane.running -= 1
            if reply.code == ResponseCode.SUCCESS:
                call.send_framed(answer)
            else:
                _refuse(call, data, reply)

        if not self._out.acknowledge_now(group, topic, offsets, done):
            return False
        way.lane.running += 1
        return True


def _refuse(call: Call, data: bytes, reply: Reply) -> None:
    """Say of each entry that it was not written, and why."""
    entries = parse("AckMessageRequest", data).entries
    acks = acknowledging.Acks(call, [(one.message_id, one.receipt_handle) for one in entries])
    outcome = AskedResult(reply.code, reply.remark or "", {}, b"", denied=False)
    for index in range(len(entries)):
        acks.taking(index)(outcome.error())
