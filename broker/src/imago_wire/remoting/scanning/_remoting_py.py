"""The hot part of the remoting protocol: a read buffer into requests, a send's answer into bytes.

This is the plain Python reference; `_remoting_c` is its compiled twin, with the same results on
every input. `imago_wire.hot` chooses.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import orjson

from imago_wire.errors import ProtocolError
from imago_wire.record_format.entries import PLACED_PHYSICAL_OFFSET, PLACED_QUEUE_OFFSET
from imago_wire.record_format.properties import NOT_SENDERS
from imago_wire.records._record_py import make_entry
from imago_wire.remoting.codes import SEND_CODES, RequestCode
from imago_wire.remoting.fields import HeaderFieldError
from imago_wire.remoting.frame import HEADER_BYTES_MAX, check_frame_size, check_header_size
from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.headers.send import read_send_header
from imago_wire.remoting.peer import OWN_VERSION
from imago_wire.remoting.scanning._granting_py import signer
from imago_wire.remoting.scanning._waiting_py import take_waiting
from imago_wire.remoting.scanning.items import BAD, FRAME, SEND, BadFrameItem, FrameItem, SendItem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_wire.record_format.entries import Entry, QueueTail
    from imago_wire.remoting.scanning.granting import Grants, UserGrants
    from imago_wire.remoting.scanning.items import AskedSend, Item
    from imago_wire.remoting.scanning.waiting import Parking

_BATCH_HEAD: Final = Struct(">iiiii")
_SHORT: Final = Struct(">h")
_LENGTH_SIZE: Final = 4
_PREFIX_SIZE: Final = 8
_JSON_ANSWER: Final = (
    b'{"code":%d,"extFields":{"MSG_REGION":"DefaultRegion","TRACE_ON":"true","msgId":"%b",'
    b'"queueId":"%d","queueOffset":"%d"%b},"flag":1,"language":"JAVA","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)
_BINARY_ANSWER: Final = b"\0\x0aMSG_REGION\0\0\0\x0dDefaultRegion\0\x08TRACE_ON\0\0\0\x04true"


def scan_frames(data: bytes | bytearray, frame_bytes_max: int) -> tuple[list[Item], int]:
    """Return what the whole frames in the buffer are, and how many bytes they took.

    A send request (codes 10, 310 and 320) whose header has all it needs comes as a SendItem,
    every other frame as a FrameItem; a send among these lacks something or has it wrong, and
    `read_send_header` says what. A BadFrameItem is always the last: the stream is lost there. It
    comes as soon as the sizes can be read, so that nobody buffers for a frame that is refused.
    """
    items: list[Item] = []
    at = 0
    while True:
        try:
            found = whole_frame(data, at, frame_bytes_max)
            if found is None:
                break
            items.append(scan_frame(*found))
        except ProtocolError as error:
            items.append(BadFrameItem(BAD, str(error)))
            break
        at += _LENGTH_SIZE + len(found[0]) + len(found[1])
    return items, at


def whole_frame(
    data: bytes | bytearray | memoryview, at: int, frame_bytes_max: int
) -> tuple[bytes, bytes] | None:
    """Return header, with its header word, and body of a frame; None: it is not whole yet."""
    left = len(data) - at
    if left < _LENGTH_SIZE:
        return None
    end = at + _LENGTH_SIZE + check_frame_size(data, at, frame_bytes_max)
    if left < _PREFIX_SIZE:
        return None
    header_end = check_header_size(data, at, HEADER_BYTES_MAX)
    if end > len(data):
        return None
    return bytes(data[at + _LENGTH_SIZE : header_end]), bytes(data[header_end:end])


def scan_frame(raw_header: bytes, body: bytes) -> Item:
    """Return one whole frame as scan_frames() gives it. ProtocolError: the header is unreadable."""
    command = decode_raw_header(raw_header, body)
    if command.code not in SEND_CODES or command.is_response:
        return FrameItem(FRAME, command)
    try:
        header = read_send_header(command.ext)
    except HeaderFieldError:
        return FrameItem(FRAME, command)
    return SendItem(
        SEND,
        command.opaque,
        command.code,
        command.is_oneway,
        header.topic,
        header.queue_id,
        header.sys_flag,
        header.born_timestamp,
        header.flag,
        header.properties.encode(),
        header.reconsume_times,
        header.batch or command.code == RequestCode.SEND_BATCH_MESSAGE,
        body,
        command.version,
        raw_header,
    )


def encode_send_response(
    opaque: int,
    msg_id: bytes,
    queue_id: int,
    queue_offset: int,
    transaction_id: bytes = b"",
    code: int = 0,
    serialize: int = 0,
    version: int = OWN_VERSION,
    recall: bytes = b"",
) -> bytes:
    """Return the whole frame that answers a stored send.

    `msg_id` is what join_message_ids() gives; `transaction_id`, the message's unique key, and
    `recall`, the handle of one that may be called back, are left out when empty; `serialize` is the
    form of the request's header.
    """
    if serialize:
        header = _binary_answer(
            opaque, msg_id, queue_id, queue_offset, transaction_id, code, version, recall
        )
    else:
        transaction = b"" if not transaction_id else b',"transactionId":' + _quoted(transaction_id)
        if recall:
            transaction += b',"recallHandle":"%b"' % recall
        header = _JSON_ANSWER % (
            code, msg_id, queue_id, queue_offset, transaction, opaque, version,
        )  # fmt: skip
    word = (1 << 24 if serialize else 0) | len(header)
    return b"%b%b%b" % (
        (len(header) + _LENGTH_SIZE).to_bytes(4, "big"),
        word.to_bytes(4, "big"),
        header,
    )


def _quoted(text: bytes) -> bytes:
    return orjson.dumps(text.decode(errors="replace"))


def _binary_answer(
    opaque: int,
    msg_id: bytes,
    queue_id: int,
    queue_offset: int,
    transaction_id: bytes,
    code: int,
    version: int,
    recall: bytes,
) -> bytes:
    ext = [_BINARY_ANSWER, _entry(b"msgId", msg_id), _entry(b"queueId", b"%d" % queue_id)]
    ext.append(_entry(b"queueOffset", b"%d" % queue_offset))
    if transaction_id:
        ext.append(_entry(b"transactionId", transaction_id))
    if recall:
        ext.append(_entry(b"recallHandle", recall))
    entries = b"".join(ext)
    return b"".join(
        (
            code.to_bytes(2, "big"),
            b"\0",
            version.to_bytes(2, "big"),
            opaque.to_bytes(4, "big", signed=True),
            b"\0\0\0\x01\0\0\0\0",
            len(entries).to_bytes(4, "big"),
            entries,
        )
    )


def _entry(name: bytes, value: bytes) -> bytes:
    return b"%b%b%b%b" % (len(name).to_bytes(2, "big"), name, len(value).to_bytes(4, "big"), value)


def join_message_ids(store_host: bytes, physical_offsets: Sequence[int]) -> bytes:
    """Return the offset message ids of stored messages, joined with commas.

    `store_host` is address (4 or 16 bytes) and port (4).
    """
    host = store_host.hex().upper().encode()
    return b",".join([b"%b%016X" % (host, offset) for offset in physical_offsets])


def answer_stored(
    opaque: int,
    store_host: bytes,
    placed: Sequence[Sequence[int]],
    queue_id: int,
    transaction_id: bytes = b"",
    code: int = 0,
    serialize: int = 0,
    recall: bytes = b"",
) -> bytes:
    """Return the frame that answers a send whose messages were stored.

    `placed` has queue offset and physical offset first, a row for each message: what a log's
    append returns. The rest is as for join_message_ids() and encode_send_response().
    """
    msg_id = join_message_ids(store_host, [place[PLACED_PHYSICAL_OFFSET] for place in placed])
    return encode_send_response(
        opaque,
        msg_id,
        queue_id,
        placed[0][PLACED_QUEUE_OFFSET],
        transaction_id,
        code,
        serialize,
        recall=recall,
    )


def scan_batch(data: bytes, entries_max: int) -> list[tuple[bytes, bytes, int]]:
    """Return body, property string and flag of every message of a batch request's body.

    ProtocolError: sizes that do not fit, or more than `entries_max` messages. The bytes are drawn
    in `imago_wire.remoting.messages`.
    """
    entries: list[tuple[bytes, bytes, int]] = []
    at = 0
    while at < len(data):
        if len(entries) == entries_max:
            raise ProtocolError(f"batch of more than {entries_max} messages")
        if len(data) - at < _BATCH_HEAD.size + _SHORT.size:
            raise ProtocolError("the last message of the batch is cut")
        size, _, _, flag, body_size = _BATCH_HEAD.unpack_from(data, at)
        body_at = at + _BATCH_HEAD.size
        body_end = body_at + body_size
        if body_size < 0 or body_end + _SHORT.size > min(len(data), at + size):
            raise ProtocolError(f"message of {size} bytes in a batch with a body of {body_size}")
        (properties_size,) = _SHORT.unpack_from(data, body_end)
        properties_at = body_end + _SHORT.size
        end = properties_at + properties_size
        if properties_size < 0 or end != at + size or end > len(data):
            raise ProtocolError(f"properties of {properties_size} bytes in a batch's message")
        entries.append((data[body_at:body_end], data[properties_at:end], flag))
        at = end
    return entries


def find_each(properties: bytes, names: Sequence[bytes]) -> list[bytes | None]:
    """Return the value of each named property, or None, in one pass over the property string.

    The same as `imago_wire.record_format.properties.find` for each name.
    """
    values: dict[bytes, bytes] = {}
    for part in properties.split(b"\x02"):
        name, separator, value = part.partition(b"\x01")
        if separator:
            values[name] = value
    return [values.get(name) for name in names]


_WAITING: Final = frozenset(
    {b"DELAY", b"TRAN_MSG", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"}
)
"""Properties of messages that do not go to their queue at once."""
_OURS: Final = b"__IMAGO_"
"""Of messages of idempotent producers, and of copies of what they sent."""


def _is_special(name: bytes) -> bool:
    return name in _WAITING or name in NOT_SENDERS or name.startswith(_OURS)


def plain_send(properties: bytes, suffix: bytes) -> tuple[bytes, bytes] | None:
    """Return a message's unique key, and its properties with `suffix` behind them.

    None for a message that needs a closer look: without a unique key, already marked with a
    CLUSTER, not meant for its queue at once, or with properties of idempotent producers or such as
    no sender may set.
    """
    unique = b""
    for part in properties.split(b"\x02"):
        name, separator, value = part.partition(b"\x01")
        if separator and (name == b"CLUSTER" or _is_special(name)):
            return None
        if separator and name == b"UNIQ_KEY":
            unique = value
    if not unique:
        return None
    separator = b"" if properties.endswith(b"\x02") else b"\x02"
    return unique, b"%b%b%b" % (properties, separator, suffix)


def scan_plain_batch(data: bytes, entries_max: int) -> list[tuple[bytes, bytes, int]] | None:
    """Do as scan_batch(); None where a message needs a closer look, as in plain_send()."""
    entries = scan_batch(data, entries_max)
    for _, properties, _ in entries:
        for part in properties.split(b"\x02"):
            name, separator, _ = part.partition(b"\x01")
            if separator and _is_special(name):
                return None
    return entries


def take_sends(
    data: bytes | bytearray | memoryview,
    limits: tuple[int, int, int],
    tails_of: Mapping[str, Sequence[QueueTail | None]],
    born_host: bytes,
    suffix: bytes,
    entries: list[Entry],
    asked: list[AskedSend],
    parking: Parking | None = None,
    grants: Grants | None = None,
) -> int:
    """Make entries of the sends at the start of data; return how many bytes they fill.

    `limits` are those of a frame, of a body, and of how many are taken; `tails_of` the queues of
    the topics that take sends as they come; `suffix` a property that all of them get. Both lists
    grow by one item a send.
    Ends at the first frame that is anything else, a batch, or a send that needs a closer look: to
    another topic or queue, too large, compressed, tried before, or neither for plain_send() nor,
    with `parking`, for take_waiting(). With `grants`, also at one that its user may not make.
    """
    frame_bytes_max, body_bytes_max, count_max = limits
    at = 0
    for _ in range(count_max):
        try:
            found = whole_frame(data, at, frame_bytes_max)
            if found is None:
                break
            item = scan_frame(*found)
            tail = _tail_of(item, body_bytes_max, tails_of)
            user = None if grants is None else _granted(item, grants)
            if tail is None or (grants is not None and user is None):
                break
            tag = "" if user is None else user.tag
            taken = _taken(item, tail, born_host, suffix, parking, len(entries), tag)
        except ProtocolError:
            break
        if taken is None:
            break
        entries.append(taken[0])
        asked.append(taken[1])
        at += _LENGTH_SIZE + len(found[0]) + len(found[1])
    return at


def _tail_of(
    item: Item, body_bytes_max: int, tails_of: Mapping[str, Sequence[QueueTail | None]]
) -> QueueTail | None:
    """Return the queue that a send goes to; None: it needs a closer look."""
    if item.kind != SEND:
        return None
    if item.reconsume_times or item.batch or len(item.body) > body_bytes_max:
        return None
    tails = tails_of.get(item.topic, ())
    return tails[item.queue_id] if 0 <= item.queue_id < len(tails) else None


def _granted(item: Item, grants: Grants) -> UserGrants | None:
    """Return the user of a send that it may make."""
    if item.kind != SEND:
        return None
    user = signer(item.raw_header, item.body, grants)
    return user if user is not None and user.publish[item.topic] else None


def _taken(
    item: Item,
    tail: QueueTail,
    born_host: bytes,
    suffix: bytes,
    parking: Parking | None,
    index: int,
    tag: str,
) -> tuple[Entry, AskedSend] | None:
    """Return a send's entry, and what its answer needs. ProtocolError: the log cannot hold it."""
    if item.kind != SEND:
        return None
    body, queue_id, born_ms = item.body, item.queue_id, item.born_ms
    plain = None if item.sys_flag else plain_send(item.properties, suffix)
    if plain is None:
        if parking is None:
            return None
        return take_waiting(item, tail, born_host, suffix, parking, index, tag)
    entry = make_entry(tail, body, plain[1], flag=item.flag, born_ms=born_ms, born_host=born_host)
    return entry, (item.opaque, item.serialize, queue_id, plain[0], item.oneway, b"")


def answer_sends(
    asked: Sequence[AskedSend],
    placed: Sequence[Sequence[int]],
    first: int,
    end: int,
    store_host: bytes,
    code: int = 0,
) -> bytes:
    """Return the frames that answer the stored sends `first` … `end`, none to a one-way send."""
    return b"".join(
        [
            answer_stored(
                opaque, store_host, [placed[first + at]], queue_id, unique, code, form, recall
            )
            for at, (opaque, form, queue_id, unique, oneway, recall) in enumerate(asked[first:end])
            if not oneway
        ]
    )
