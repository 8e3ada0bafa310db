"""Receipt handles: which delivery of which message a client speaks of, until when it is its own.

A handle is POP's receipt and the message's place in the log behind it. Clients hand it back as it
is; anything else is refused as one that does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from imago_broker.processors.grpc.calls import CallError
from imago_wire.errors import ProtocolError
from imago_wire.grpc.codes import SdkCode
from imago_wire.remoting.texts.handles import PopReceipt, parse_pop_receipt

HANDLE_SIZE_MAX = 1024


@dataclass(frozen=True, slots=True)
class Handle:
    """One delivery."""

    receipt: PopReceipt
    log_offset: int

    def __str__(self) -> str:
        return f"{self.receipt} {self.log_offset}"

    @property
    def due_ms(self) -> int:
        """Until when the message is out."""
        return self.receipt.pop_time + self.receipt.invisible_time

    def postponed(self, pop_time: int, invisible_ms: int) -> Handle:
        """Return the handle of the same message, out for as long from then on."""
        receipt = replace(self.receipt, pop_time=pop_time, invisible_time=invisible_ms)
        return replace(self, receipt=receipt)


def parse_handle(text: str) -> Handle:
    """Return what a handle says; CallError: it is none."""
    receipt, _, offset = text.rpartition(" ")
    if len(text) > HANDLE_SIZE_MAX or not offset.isdecimal() or not offset.isascii():
        raise CallError(SdkCode.INVALID_RECEIPT_HANDLE, "this is no receipt handle")
    try:
        return Handle(parse_pop_receipt(receipt), int(offset[:19]))
    except ProtocolError as error:
        raise CallError(SdkCode.INVALID_RECEIPT_HANDLE, f"no receipt handle: {error}") from None
