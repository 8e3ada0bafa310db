"""Large requests of one connection that are refused by their headers, while their bodies come."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from imago_broker.processors.rocketmq.exchange import Exchange
from imago_wire.errors import ProtocolError
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand
from imago_wire.remoting.frame import HEADER_BYTES_MAX, check_header_size, encode_frame
from imago_wire.remoting.header import decode_raw_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.processors.rocketmq.access.refused_requests import RefusedRequest
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.service.groups.channel import Channel

log = logging.getLogger(__name__)

EARLY_LOOK_BYTES: Final = 64 << 10
"""A request that is not whole by then is refused by its header, where that is enough for it."""
CROWDED_LOOK_BYTES: Final = 4 << 10
"""The same while connections hold much of what others have begun."""
CROWDED_HEADER_BYTES_MAX: Final = 40 << 10
"""Meanwhile a header that is not whole by then ends its connection: nobody knows whose it is. Those
of sends have at most the properties of a message, of 32 KiB."""
UNASKED: Final = -1
"""A number that no request of a broker to its client has."""


class HeaderRefusals:
    """Looks once at the header of each large frame that begins a connection's buffer."""

    __slots__ = ("_crowded", "_looked", "_table", "channel", "refused")

    def __init__(
        self, table: Table, channel: Channel, crowded: Callable[[], bool] = lambda: False
    ) -> None:
        """`crowded`: whether all connections together hold much."""
        self._table, self.channel, self._crowded = table, channel, crowded
        self._looked = False
        self.refused: RefusedRequest | None = None
        """The frame of which the buffer has the header alone."""

    def begin(self) -> None:
        """Another frame begins the buffer, or none."""
        self._looked = False

    def look(self, buffer: bytearray) -> None:
        """Refuse the request that begins the buffer, if its header is enough for that.

        What has come of its body is taken out of the buffer then.
        """
        size = len(buffer)
        if self._looked or (size < EARLY_LOOK_BYTES and size < CROWDED_LOOK_BYTES):
            return
        crowded = self._crowded()
        if size < EARLY_LOOK_BYTES and not crowded:
            return
        try:
            body_at = check_header_size(buffer, 0, HEADER_BYTES_MAX)
            if size < body_at:
                if crowded and size >= CROWDED_HEADER_BYTES_MAX:
                    log.info("connection_closed peer=%s reason=header_not_whole", self.channel.peer)
                    self.channel.close()
                return
            self._looked = True
            command = decode_raw_header(bytes(buffer[4:body_at]))
        except ProtocolError:
            return  # the scan says so once the frame is whole
        if command.is_response:
            return
        refused = self._table.refused_by_header(Exchange(self.channel, command))
        if refused is None:
            return
        refused.left = 4 + int.from_bytes(buffer[:4], "big") - len(buffer)
        refused.take(buffer[body_at:])
        del buffer[body_at:]
        self.refused = refused

    def pass_over(self, refused: RefusedRequest, data: bytes) -> bytes:
        """Take what has come of the refused request's body; return what is behind it."""
        body = data[: refused.left]
        refused.take(body)
        refused.left -= len(body)
        if not refused.left:
            self.refused = None
            refused.answer()
        return data[len(body) :]

    def leave(self, buffer: bytearray) -> None:
        """Refuse now, and make the buffer the beginning of an answer that nobody waits for.

        Its body is what has not come of the refused one: who goes on with the connection passes it
        over, even if the rights are others by then.
        """
        self._looked = False
        if self.refused is not None:
            refused, self.refused = self.refused, None
            refused.answer()
            unasked = RemotingCommand(code=0, flag=FLAG_RESPONSE, opaque=UNASKED)
            head = encode_frame(unasked)
            buffer[:] = (len(head) - 4 + refused.left).to_bytes(4, "big") + head[4:]
