"""Fuzz targets of the remoting protocol: each takes any bytes and fails on what must not happen.

A target may raise nothing: a decoder's ProtocolError is an answer, everything else is a bug. What
it returns tells inputs apart that take different ways.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from imago_testing.frames.remoting import load_captures, load_known
from imago_wire import hot
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.client import HeartbeatData
from imago_wire.remoting.bodies.fields import BodyError
from imago_wire.remoting.bodies.register import decode_register_body
from imago_wire.remoting.bodies.route import ClusterInfo, TopicRouteData
from imago_wire.remoting.bodies.stats import ConsumeStats, ResetOffsetBody
from imago_wire.remoting.fields import Header, HeaderFieldError
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from imago_wire.remoting.messages import decode_batch, decode_messages, encode_batch
from imago_wire.remoting.peer import Version
from imago_wire.remoting.scanning import _remoting_py as plain
from imago_wire.remoting.scanning import items as items_of
from imago_wire.remoting.texts.properties_text import decode_properties_text
from imago_wire.remoting.texts.trace import decode_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from imago_wire.remoting.command import RemotingCommand

GOLDEN: Final = Path(__file__).parents[1] / "wire" / "remoting" / "golden"
FRAME_BYTES_MAX: Final = 1 << 16
HEADERS: Final[Sequence[type[Header]]] = sorted(
    {*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}, key=lambda kind: kind.__name__
)
BODIES: Final = (HeartbeatData, TopicRouteData, ClusterInfo, ResetOffsetBody, ConsumeStats)


def scan(data: bytes) -> Hashable:
    """Both twins cut the stream into the same frames, and reach the same end piece by piece."""
    expected = plain.scan_frames(data, FRAME_BYTES_MAX)
    assert hot.scan_frames(data, FRAME_BYTES_MAX) == expected
    items, consumed = expected
    assert consumed <= len(data)
    kinds = tuple(item[0] for item in items)
    if items_of.BAD in kinds:
        return (*kinds, str(items[-1][1])[:24])
    middle = len(data) // 2
    first, used = hot.scan_frames(data[:middle], FRAME_BYTES_MAX)
    second, rest = hot.scan_frames(data[used:], FRAME_BYTES_MAX)
    assert first + second == items
    assert used + rest == consumed
    return kinds


def frames(data: bytes) -> Hashable:
    """What can be decoded can be encoded, and decodes to the same again."""
    found = _commands(data)
    for command in found:
        try:
            written = encode_frame(command)
        except UnicodeEncodeError as error:
            raise AssertionError("a decoded text cannot be encoded") from error
        (again,) = _commands(written)
        command.language = again.language  # an unknown one has no name to write
        assert again == command
        for kind in _header_classes(command.code):
            _header(kind, command.ext)
    return tuple((command.code, len(command.ext)) for command in found)


def _commands(data: bytes) -> list[RemotingCommand]:
    decoder = FrameDecoder(frame_bytes_max=FRAME_BYTES_MAX)
    decoder.feed(data)
    found = []
    try:
        while (command := decoder.next_frame()) is not None:
            found.append(command)
    except ProtocolError:
        pass
    return found


def _header_classes(code: int) -> Sequence[type[Header]]:
    """Return those of a known code, and for another some that change with it."""
    tables = (REQUEST_HEADERS, RESPONSE_HEADERS)
    found = [kind for table in tables for known, kind in table.items() if known == code]
    return found or HEADERS[code % 16 :: 16]


def _header(kind: type[Header], ext: Mapping[str, str]) -> None:
    try:
        value = kind.from_ext(ext)
    except HeaderFieldError:
        return
    assert kind.from_ext(value.to_ext()) == value


def bodies(data: bytes) -> Hashable:
    """A body that was read is written so that it reads the same."""
    found: list[str] = []
    for kind in BODIES:
        try:
            value: Any = kind.decode(data)
        except BodyError as error:
            found.append(str(error)[:24])
            continue
        assert kind.decode(value.encode()) == value
        assert kind.decode(value.encode(standard=True)) == value
        found.append(kind.__name__)
    return tuple(found)


def batch(data: bytes) -> Hashable:
    """A batch that was read is written with the same sizes."""
    try:
        entries = decode_batch(data)
    except ProtocolError as error:
        return str(error)[:24]
    assert len(encode_batch(entries)) == len(data)
    return len(entries)


def messages(data: bytes) -> Hashable:
    """Records of a pull take up exactly the body; inflation stays in its limit."""
    try:
        found = decode_messages(data, inflate_bytes_max=1 << 20)
    except ProtocolError as error:
        return str(error)[:24]
    assert sum(message.size for message in found) == len(data)
    assert sum(len(message.body) for message in found) <= len(data) + (1 << 20)
    return len(found)


def registration(data: bytes) -> Hashable:
    """A registration is read or refused, compressed or not."""
    found: list[Hashable] = []
    for body in (data, zlib.compress(data)):
        try:
            registered = decode_register_body(body, version=Version.V5_3_3)
        except BodyError as error:
            found.append(str(error)[:48])
        else:
            found.append(len(registered.topic_config_serialize_wrapper.topic_config_table))
    return tuple(found)


def texts(data: bytes) -> Hashable:
    """Configuration text never fails, trace records only as they may."""
    entries = min(9, len(decode_properties_text(data)))
    try:
        return (entries, min(9, len(decode_trace(data))))
    except ProtocolError as error:
        return (entries, str(error)[:24])


def _seeds() -> dict[str, list[bytes]]:
    known = load_known(GOLDEN / "known.hex")
    whole = [one.data for one in load_captures(GOLDEN / "captured.hex") if one.is_whole]
    all_frames = whole + [
        data for data in known.values() if data[4:5] in (b"\x00", b"\x01") and _commands(data)
    ]
    frame_bodies = [command.body for data in all_frames for command in _commands(data)]
    return {
        "remoting.scan": all_frames,
        "remoting.frames": all_frames,
        "remoting.bodies": [body for body in frame_bodies if body[:1] == b"{"],
        "remoting.batch": [known["batch-body"]],
        "remoting.messages": [data for name, data in known.items() if name.startswith("message")],
        "remoting.registration": [known["register-inflated"], known["register-deflated"]],
        "remoting.texts": [known["trace-publish"], b"a=b\n# c\nd:\\\n e\\u00e9\n"],
    }


TARGETS: Final[Mapping[str, Callable[[bytes], Hashable]]] = MappingProxyType(
    {
        "remoting.scan": scan,
        "remoting.frames": frames,
        "remoting.bodies": bodies,
        "remoting.batch": batch,
        "remoting.messages": messages,
        "remoting.registration": registration,
        "remoting.texts": texts,
    }
)
SEEDS: Final[Mapping[str, Sequence[bytes]]] = MappingProxyType(_seeds())
