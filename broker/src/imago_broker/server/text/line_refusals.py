"""Large MetaQ commands of a connection that their lines refuse, while their bodies come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.server.remoting.header_refusals import CROWDED_LOOK_BYTES, EARLY_LOOK_BYTES
from imago_wire.errors import ProtocolError
from imago_wire.text.encoder import value_head
from imago_wire.text.line import Pending, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_wire.text.commands import Command

LINE_END = b"\r\n"


class LineRefusals:
    """Looks once at the line of each large command that begins a connection's buffer."""

    __slots__ = (
        "_answer",
        "_crowded",
        "_line_bytes_max",
        "_looked",
        "_refusal",
        "_size_max",
        "left",
    )

    def __init__(
        self,
        refusal: Callable[[Command], bytes | None],
        line_bytes_max: int,
        body_bytes_max: int,
        crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        """`refusal` answers a command without its body, which nobody needs; None: it is needed.

        `crowded`: whether all connections together hold much.
        """
        self._refusal, self._crowded = refusal, crowded
        self._line_bytes_max, self._size_max = line_bytes_max, body_bytes_max
        self._answer = b""
        self._looked = False
        self.left = 0
        """Bytes that have not come of the refused body; the buffer has the line alone."""

    def begin(self) -> None:
        """Another command begins the buffer, or none."""
        self._looked = False

    def look(self, buffer: bytearray) -> None:
        """Refuse the command that begins the buffer, if its line is enough for that.

        What has come of its body is taken out of the buffer then.
        """
        size = len(buffer)
        if self._looked or (size < EARLY_LOOK_BYTES and size < CROWDED_LOOK_BYTES):
            return
        if size < EARLY_LOOK_BYTES and not self._crowded():
            return
        end = buffer.find(LINE_END, 0, self._line_bytes_max + len(LINE_END))
        if end < 0:
            return
        self._looked = True
        try:
            pending = parse_line(bytes(buffer[:end]))
        except ProtocolError:
            return  # the scan says so
        if not isinstance(pending, Pending) or pending.size > self._size_max:
            return
        body_at = end + len(LINE_END)
        left = body_at + pending.size - len(buffer)
        answer = self._refusal(pending.finish(b"")) if left > 0 else None
        if answer is not None:
            self._answer, self.left = answer, left
            del buffer[body_at:]

    def pass_over(self, data: bytes) -> tuple[bytes, bytes]:
        """Drop what has come of the refused body; return the answer at its end, and the rest."""
        behind = data[self.left :]
        self.left = max(0, self.left - len(data))
        return (b"" if self.left else self._answer), behind

    def leave(self, buffer: bytearray) -> bytes:
        """Return the answer, and make the buffer the line of a command that asks for nothing.

        Its body is what has not come of the refused one: who goes on with the connection passes it
        over, even if the rights are others by then.
        """
        self._looked = False
        if not self.left:
            return b""
        buffer[:] = value_head(self.left, 0)
        self.left = 0
        return self._answer
