"""Compressed bodies of topics that MetaQ clients read too: inflated once, to know their shape.

MetaQ readers get the plain body, so its length and checksum are stored beside the message. Output
is bounded by the body limit. What stays below 64 KiB is inflated at once; anything larger in
another thread, while the rest of its connection waits, so that the connection's order is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import Reply
from imago_broker.processors.rocketmq.outcomes import illegal_message
from imago_wire.compression import inflate
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.record_format.layout import SYS_COMPRESSED
from imago_wire.records.record import metaq_shape
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.processors.rocketmq.exchange import Exchange

log = logging.getLogger(__name__)

IN_LOOP_BYTES_MAX = 64 << 10
WAITING_BYTES_MAX = 64 << 20
"""Compressed bytes that wait for the other thread; more are refused, to be sent again."""

Shape = tuple[int, int]
Part = tuple[bytes, bytes]
"""Body and properties of one message."""
Use = Callable[["list[Shape | None]"], None]
"""Gets one shape a message; None stands for a body that is not compressed."""


class Inflater:
    """Finds the shapes of compressed bodies."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting_bytes = 0

    def shapes(
        self,
        exchange: Exchange,
        parts: Sequence[Part],
        sys_flag: int,
        *,
        body_bytes_max: int,
        use: Use,
    ) -> None:
        """Call `use` with the shapes, now or when another thread has them; or refuse the request.

        `use` may find another world than there was: whatever it needs it has to look up itself.
        """
        if not sys_flag & SYS_COMPRESSED:
            use([None] * len(parts))
            return
        try:
            small = _shapes(parts, sys_flag, IN_LOOP_BYTES_MAX)
        except LimitExceededError:
            self._in_other_thread(exchange, parts, sys_flag, body_bytes_max, use)
        except ProtocolError:
            exchange.answer(illegal_message(body_bytes_max))
        else:
            use(small)

    def _in_other_thread(
        self,
        exchange: Exchange,
        parts: Sequence[Part],
        sys_flag: int,
        body_bytes_max: int,
        use: Use,
    ) -> None:
        size = sum(len(body) for body, _ in parts)
        if self._waiting_bytes + size > WAITING_BYTES_MAX:
            exchange.answer(Reply(ResponseCode.SYSTEM_BUSY, "too many bodies wait to be inflated"))
            return
        self._waiting_bytes += size
        exchange.channel.hold_back()
        future = self._loop.run_in_executor(None, _shapes, parts, sys_flag, body_bytes_max)

        def done(finished: asyncio.Future[list[Shape | None]]) -> None:
            self._waiting_bytes -= size
            try:
                use(finished.result())
            except ProtocolError:
                exchange.answer(illegal_message(body_bytes_max))
            except (Exception, asyncio.CancelledError):
                # Whatever it was, this request is answered and its connection goes on.
                log.exception("inflating_failed peer=%s", exchange.channel.peer)
                exchange.answer(Reply(ResponseCode.SYSTEM_ERROR, "the body was not inflated"))
            finally:
                exchange.channel.go_on()

        future.add_done_callback(done)


def _shapes(parts: Sequence[Part], sys_flag: int, size_max: int) -> list[Shape | None]:
    """Return the shapes; LimitExceededError when all together are larger than `size_max`."""
    found: list[Shape | None] = []
    left = size_max
    for body, properties in parts:
        inflated = inflate(body, sys_flag, left)
        left -= len(inflated)
        found.append(metaq_shape(inflated, properties))
    return found
