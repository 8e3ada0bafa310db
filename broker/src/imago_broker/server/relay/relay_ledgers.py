"""What a relayed connection has asked of the new master and has no answer to yet.

A relay passes on whole requests and whole answers only. So at every moment both sides stand
between two of them, everybody may speak to the client in turn, and the connection can change hands
whenever that is wanted. The ledgers cut both streams and keep the account: one for each protocol.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from imago_wire.errors import ProtocolError
from imago_wire.hot import scan_text
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.frame import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    check_frame_size,
    check_header_size,
    encode_frame,
)
from imago_wire.remoting.header import HEADER_SIZE_MAX, decode_raw_header
from imago_wire.text.commands import (
    OPAQUE_DEFAULT,
    Quit,
    Result,
    Transaction,
    TransactionType,
    Value,
)
from imago_wire.text.encoder import result
from imago_wire.text.items import BAD, GET, OTHER, PUT
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from imago_wire.text.items import Item

MASTER_LOST = "the master that this was passed on to is gone"

HEARTBEAT_BYTES_MAX = 256 << 10
"""A longer heartbeat is not kept for a relay: its client beats again within 30 s."""

_POLLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
_LENGTH_SIZE, _PREFIX_SIZE = 4, 8


class Ledger(Protocol):
    """The account of one connection."""

    answers_half_closed: bool
    """Whether a client that has closed its side still gets its answers."""

    @property
    def owing(self) -> bool:
        """Whether an answer is still to come."""
        ...

    @property
    def pressing(self) -> bool:
        """Whether one is to come that does not wait for messages."""
        ...

    @property
    def last(self) -> bool:
        """Whether the client has asked for the last time: it is closed when all is answered."""
        ...

    @property
    def greeted(self) -> bool:
        """Whether the new master has answered the greeting, or needs none."""
        ...

    def greeting(self) -> bytes:
        """What goes to the new master first on a new connection; empty: nothing."""
        ...

    def requests(self, data: bytes) -> bytes:
        """Take what the client said; return the whole requests that there are now.

        What is no request is the last that is read of a client.
        """
        ...

    def answers(self, data: bytes) -> bytes:
        """Take what the new master said; return what of it is for the client by now.

        ProtocolError: it is no answer.
        """
        ...

    def unread(self) -> bytes:
        """Return, and forget, what has come of a request that is not whole."""
        ...

    @property
    def unread_size(self) -> int:
        """How much that is."""
        ...

    def refusals(self) -> bytes:
        """Answer everything that is owed: the master that owed it is gone."""
        ...


class FrameLedger:
    """The account of a RocketMQ connection."""

    answers_half_closed = False

    def __init__(self, heartbeat: RemotingCommand | None) -> None:
        """`heartbeat`: the client's last one, which makes it known to the new master."""
        self.heartbeat = heartbeat
        self.last = False
        self._asked, self._told = _Frames(HEADER_BYTES_MAX), _Frames(HEADER_SIZE_MAX)
        self._owed: dict[int, SerializeType] = {}
        self._polls: set[int] = set()
        """Numbers of those of them that may wait for messages."""
        self._greeting: int | None = None
        """Number of the greeting that is not answered."""

    @property
    def owing(self) -> bool:
        return bool(self._owed)

    @property
    def pressing(self) -> bool:
        return len(self._owed) > len(self._polls)

    @property
    def greeted(self) -> bool:
        return self._greeting is None

    def greeting(self) -> bytes:
        self._told = _Frames(HEADER_SIZE_MAX)  # of the new connection
        if self.heartbeat is None:
            return b""
        self._greeting = self.heartbeat.opaque
        return encode_frame(self.heartbeat)

    def requests(self, data: bytes) -> bytes:
        frames, wrong = self._asked.take(data)
        self.last = self.last or bool(wrong)
        for frame, head in frames:
            if head.is_response or head.is_oneway:
                continue
            self._owed[head.opaque] = head.serialize
            if head.code in _POLLS:
                self._polls.add(head.opaque)
            elif head.code == RequestCode.HEART_BEAT:
                self._keep_heartbeat(frame, head)
        return b"".join([frame for frame, _ in frames])

    def answers(self, data: bytes) -> bytes:
        passed = []
        frames, wrong = self._told.take(data)
        if wrong:
            raise ProtocolError(wrong)
        for frame, head in frames:
            if head.is_response:
                if head.opaque == self._greeting:
                    self._greeting = None
                    continue
                self._owed.pop(head.opaque, None)
                self._polls.discard(head.opaque)
            passed.append(frame)
        return b"".join(passed)

    def unread(self) -> bytes:
        return self._asked.rest()

    @property
    def unread_size(self) -> int:
        return self._asked.size

    def refusals(self) -> bytes:
        owed, self._owed, self._greeting = self._owed, {}, None
        self._polls.clear()
        refused = (
            RemotingCommand(
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
                flag=FLAG_RESPONSE,
                opaque=opaque,
                remark=MASTER_LOST,
                serialize=form,
            )
            for opaque, form in owed.items()
        )
        return b"".join(map(encode_frame, refused))

    def _keep_heartbeat(self, frame: bytes, head: RemotingCommand) -> None:
        if len(frame) <= HEARTBEAT_BYTES_MAX:
            body_at = check_header_size(frame, 0, HEADER_BYTES_MAX)
            self.heartbeat = replace(head, body=frame[body_at:])


class TextLedger:
    """The account of a MetaQ connection."""

    answers_half_closed = True
    greeted = True

    def __init__(self, line_bytes_max: int, body_bytes_max: int) -> None:
        self.last = False
        self._limits = (line_bytes_max, body_bytes_max)
        self._asked, self._told = bytearray(), bytearray()
        self._owed: Counter[int] = Counter()

    @property
    def owing(self) -> bool:
        return bool(self._owed)

    @property
    def pressing(self) -> bool:
        return self.owing

    def greeting(self) -> bytes:
        self._told.clear()
        return b""

    def requests(self, data: bytes) -> bytes:
        self._asked += data
        if self.last:
            return b""
        items, used = scan_text(self._asked, *self._limits)
        for item in items:
            opaque = _opaque_of(item)
            if opaque is not None:
                self._owed[opaque] += 1
            elif item.kind == BAD or (item.kind == OTHER and isinstance(item.command, Quit)):
                self.last = True
                break  # a session serves nothing more either
        passed = bytes(self._asked[:used])
        del self._asked[:used]
        return passed

    def answers(self, data: bytes) -> bytes:
        self._told += data
        at = 0
        while (end := self._told.find(b"\r\n", at)) >= 0:
            line = _ANSWER_LINE.fullmatch(self._told, at, end)
            if line is None:
                raise ProtocolError(f"no answer: {bytes(self._told[at : min(end, at + 80)])!r}")
            end += 2 + int(line[1])
            if end > len(self._told):
                break
            self._settle(int(line[2]))
            at = end
        passed = bytes(self._told[:at])
        del self._told[:at]
        return passed

    def unread(self) -> bytes:
        rest = bytes(self._asked)
        self._asked.clear()
        return rest

    @property
    def unread_size(self) -> int:
        return len(self._asked)

    def refusals(self) -> bytes:
        owed = list(self._owed.elements())
        self._owed.clear()
        return b"".join(result(Status.INTERNAL_SERVER_ERROR, MASTER_LOST, each) for each in owed)

    def _settle(self, opaque: int) -> None:
        self._owed[opaque] -= 1
        if self._owed[opaque] <= 0:
            del self._owed[opaque]


_ANSWER_LINE = re.compile(rb"(?:result \d{1,10}|value) (\d{1,10}) (-?\d{1,11})")


def _opaque_of(item: Item) -> int | None:
    """Return the number of a command that is answered."""
    if item.kind == PUT or item.kind == GET:
        return item.opaque
    if item.kind == BAD:
        return None
    command = item.command
    if isinstance(command, Quit | Result | Value):
        return None
    if isinstance(command, Transaction) and command.type is TransactionType.END:
        return None
    return OPAQUE_DEFAULT if command.opaque is None else command.opaque


_Frame = tuple[bytes, RemotingCommand]
"""The bytes of a whole frame, and its header."""


class _Frames:
    """Cuts a stream of length-prefixed frames."""

    def __init__(self, header_bytes_max: int) -> None:
        self._header_bytes_max = header_bytes_max
        self._buffer = bytearray()

    def take(self, data: bytes) -> tuple[list[_Frame], str]:
        """Return the whole frames that there are now, and what is wrong with the next one."""
        buffer = self._buffer
        buffer += data
        at, wrong = 0, ""
        frames: list[_Frame] = []
        try:
            while (found := self._next(at)) is not None:
                frames.append(found)
                at += len(found[0])
        except ProtocolError as error:
            wrong = str(error)
        del buffer[:at]
        return frames, wrong

    def _next(self, at: int) -> _Frame | None:
        buffer = self._buffer
        if len(buffer) - at < _LENGTH_SIZE:
            return None
        end = at + _LENGTH_SIZE + check_frame_size(buffer, at, FRAME_BYTES_MAX)
        if len(buffer) - at < _PREFIX_SIZE:
            return None
        header_end = check_header_size(buffer, at, self._header_bytes_max)
        if end > len(buffer):
            return None
        head = decode_raw_header(bytes(buffer[at + _LENGTH_SIZE : header_end]))
        return bytes(buffer[at:end]), head

    @property
    def size(self) -> int:
        """How much there is of a frame that is not whole."""
        return len(self._buffer)

    def rest(self) -> bytes:
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest
