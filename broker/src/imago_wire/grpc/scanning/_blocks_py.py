"""Headers out of the form in which HTTP/2 shortens them (HPACK, RFC 7541).

This is the plain Python reference; `_blocks_c` is its compiled twin, with the same results on every
input. `twins` chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpack import Decoder, HPACKError

from imago_wire.errors import ProtocolError
from imago_wire.grpc.frames import END_HEADERS, END_STREAM, HEAD_BYTES, Http2Frame, read_head

if TYPE_CHECKING:
    from collections.abc import Collection


class HeaderDecoder:
    """Of one connection: each block may refer to what those before it have taught."""

    def __init__(self, header_bytes_max: int, wanted: Collection[str]) -> None:
        """`wanted`: names of the fields that somebody asks for; of the others nothing is kept."""
        self._block_bytes_max = header_bytes_max
        self._decoder = Decoder(max_header_list_size=header_bytes_max)
        self._wanted = {name.encode(): name for name in wanted}

    def decode(self, block: bytes) -> dict[str, str]:
        """Return the wanted fields; of one that comes twice the last counts.

        ProtocolError: the block is none, or above the limit; later ones cannot be read any more.
        """
        try:
            found = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise ProtocolError("headers cannot be read") from error
        wanted = self._wanted
        return {
            wanted[bytes(name)]: bytes(value).decode("utf-8", "replace")
            for name, value in found
            if bytes(name) in wanted
        }

    def whole_call(
        self, data: bytes | bytearray, at: int, last: int, data_bytes_max: int
    ) -> tuple[int, dict[str, str], bytes, int] | None:
        """Return a call that is whole in two frames: number, fields, message, and where it ends.

        None, and nothing is read: there is no such call, with a number above `last` and no more
        than `data_bytes_max` in its second frame. ProtocolError as for `decode`.
        """
        if len(data) - at < HEAD_BYTES:
            return None
        size, kind, flags, number = read_head(data, at)
        begin = at + HEAD_BYTES + size
        if kind != Http2Frame.HEADERS or flags != END_HEADERS or size > self._block_bytes_max:
            return None
        if len(data) - begin < HEAD_BYTES + 5 or number % 2 == 0 or number <= last:
            return None
        taken, kind, flags, same = read_head(data, begin)
        end, message = begin + HEAD_BYTES + taken, begin + HEAD_BYTES + 5
        if kind != Http2Frame.DATA or flags != END_STREAM or same != number or end > len(data):
            return None
        length = int.from_bytes(data[message - 4 : message], "big")
        if not 5 <= taken <= data_bytes_max or data[message - 5] or length != taken - 5:
            return None
        fields = self.decode(bytes(data[at + HEAD_BYTES : begin]))
        return number, fields, bytes(data[message:end]), end
