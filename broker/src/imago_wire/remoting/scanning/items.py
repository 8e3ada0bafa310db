"""What a scan of RocketMQ's frames returns: named tuples; the first member says which one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from imago_wire.remoting.command import RemotingCommand

SEND: Final = 1
FRAME: Final = 0
BAD: Final = -1


class SendItem(NamedTuple):
    """A send request whose header has all it needs."""

    kind: Literal[1]
    opaque: int
    code: int
    oneway: bool
    topic: str
    queue_id: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: bytes
    """The property string."""
    reconsume_times: int
    batch: bool
    body: bytes
    version: int
    raw_header: bytes
    """The header with its header word, for `decode_raw_header`, where more of it is needed."""

    @property
    def serialize(self) -> int:
        """The form of the header: a `SerializeType`."""
        return self.raw_header[0]


class FrameItem(NamedTuple):
    """Any other frame."""

    kind: Literal[0]
    command: RemotingCommand


class BadFrameItem(NamedTuple):
    """The end of what can be read: the stream is lost here."""

    kind: Literal[-1]
    reason: str


Item: TypeAlias = SendItem | FrameItem | BadFrameItem
AskedSend: TypeAlias = tuple[int, int, int, bytes, bool, bytes]
"""Of a send that was taken: opaque, form of its header, queue, unique key, one-way, and the handle
by which a timer is called back."""
ASKED_UNIQUE: Final = 3


class AskedPull(NamedTuple):
    """A pull as the known clients write it. Numbers are as they were asked for, not limited yet."""

    size: int
    """Of its frame."""
    opaque: int
    serialize: int
    """The form of its header: a `SerializeType`."""
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    messages_max: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    sub_version: int
    bytes_max: int
    """-1: it says none."""
    subscription: str
    expression_type: str | None
    batch: bool
    """Whether its client takes large answers."""


def frame_of(item: Item) -> bytes:
    """Return a scanned request as the bytes that it came in."""
    match item:
        case SendItem():
            size = len(item.raw_header) + len(item.body)
            return b"%b%b%b" % (size.to_bytes(4, "big"), item.raw_header, item.body)
        case FrameItem():
            return encode_frame(item.command)
        case BadFrameItem():
            # What is no frame ends the connection wherever it is read: so does an empty one.
            return bytes(4)
