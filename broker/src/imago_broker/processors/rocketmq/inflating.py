"""Compressed bodies of topics that MetaQ clients read too: inflated once, to know their shape.

MetaQ readers get the plain body, so its length and checksum are stored beside the message. Output
is bounded by the body limit. What stays below 64 KiB is inflated at once; anything larger in
another thread, while the rest of its connection waits, so that the connection's order is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from imago_wire.compression import inflate
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.layout import SYS_COMPRESSED
from imago_wire.record import metaq_shape

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.service.channel import Channel

IN_LOOP_BYTES_MAX = 64 << 10

Shape = tuple[int, int]
Part = tuple[bytes, bytes]
"""Body and properties of one message."""
Use = Callable[["list[Shape | None] | None"], None]
"""Gets one shape a message, or None when one of the bodies is illegal."""


class Inflater:
    """Finds the shapes of compressed bodies."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def shapes(
        self,
        channel: Channel,
        parts: Sequence[Part],
        sys_flag: int,
        *,
        body_bytes_max: int,
        use: Use,
    ) -> None:
        """Call `use` with the shapes of these messages, now or when another thread has them."""
        if not sys_flag & SYS_COMPRESSED:
            use([None] * len(parts))
            return
        try:
            small = _shapes(parts, sys_flag, IN_LOOP_BYTES_MAX)
        except LimitExceededError:
            self._in_other_thread(channel, parts, sys_flag, body_bytes_max, use)
        except ProtocolError:
            use(None)
        else:
            use(small)

    def _in_other_thread(
        self,
        channel: Channel,
        parts: Sequence[Part],
        sys_flag: int,
        body_bytes_max: int,
        use: Use,
    ) -> None:
        channel.hold_back()
        future = self._loop.run_in_executor(None, _shapes_or_none, parts, sys_flag, body_bytes_max)

        def done(finished: asyncio.Future[list[Shape | None] | None]) -> None:
            if finished.cancelled():
                return
            use(finished.result())
            channel.go_on()

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


def _shapes_or_none(
    parts: Sequence[Part], sys_flag: int, size_max: int
) -> list[Shape | None] | None:
    try:
        return _shapes(parts, sys_flag, size_max)
    except ProtocolError:
        return None
