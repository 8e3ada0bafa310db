"""Fuzz targets of records: a damaged log, property strings, and messages on their way in."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from imago_testing.frames.records import HOST, NOW_MS, sample_log
from imago_testing.frames.twins import Twin
from imago_wire import hot
from imago_wire.compression import compress, inflate
from imago_wire.errors import ProtocolError
from imago_wire.record_format.properties import RESERVED_NAMES, decode, encode, find, strip_reserved
from imago_wire.records import record
from imago_wire.text.message import parse_block

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

PLAIN: Final = Twin("python")


def _outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[str, Any]:
    try:
        return "", call(*arguments, **named)
    except ProtocolError as error:
        return f"{type(error).__name__}: {error}", None


def scan(data: bytes) -> Hashable:
    """Both twins find the same records, with and without checksums, keys included."""
    assert hot.scan_records(data, 0) == PLAIN.scan_records(data, 0)
    found = hot.scan_records(data, 0, verify=False)
    assert found == PLAIN.scan_records(data, 0, verify=False)
    assert found.end == sum(view.size for view in found.views) <= len(data)
    assert hot.key_entries(data, 0) == PLAIN.key_entries(data, 0)
    return (len(found.views), found.stop, found.reason[:12])


def decoding(data: bytes) -> Hashable:
    """Bytes are one whole record or refused; what is read again as a whole agrees."""
    error, message = _outcome(record.decode_record, data, verify=False)
    if error:
        return error[:24]
    assert 91 <= message.size <= len(data)
    view_error, view = _outcome(hot.view_record, data)
    if not view_error:
        assert view.topic.decode("utf-8", "replace") == message.topic
        assert view.body_size == len(message.body)
    _outcome(record.decode_record, data, inflate=True, inflate_bytes_max=1 << 16)
    return (view_error[:24], len(message.properties))


def metaq(data: bytes) -> Hashable:
    """Both twins give the same stored form, and a client could read it."""
    expected = _outcome(PLAIN.metaq_block, [data])
    assert _outcome(hot.metaq_block, [data]) == expected
    error, block = expected
    if error:
        return error[:24]
    head, payload = hot.metaq_form(data)
    assert head + payload == block
    try:
        messages = list(parse_block(block))
    except ProtocolError:
        return "checksum"  # the damage was in the body: scan_records() is what finds that
    assert sum(message.size for message in messages) == len(block)
    return messages[0].flag & 1


def properties(data: bytes) -> Hashable:
    """No property string fails, and what it holds survives being written."""
    found = decode(data)
    for name in list(found)[:20]:
        value = find(data, name.encode())
        # U+FFFD stands for other bytes: their property is not found under that name.
        assert value is None or value.decode("utf-8", "replace") == found[name] or "�" in name
    rest = strip_reserved(data)
    names = {part.partition(b"\x01")[0] for part in rest.split(b"\x02")}
    assert not names & RESERVED_NAMES
    error, written = _outcome(encode, found)
    if not error:
        assert decode(written) == found
    return (min(len(found), 20), bool(error))


def building(data: bytes) -> Hashable:
    """Both twins store the same for any body and properties, and it is found again."""
    middle = len(data) // 2
    body, text = data[:middle], data[middle:]
    built = []
    for twin in (PLAIN, hot):
        tail = twin.QueueTail(b"topic", 1, dual=True)
        offers = [
            _outcome(twin.make_entry, tail, body, text, born_ms=NOW_MS, born_host=HOST),
            _outcome(twin.metaq_entry, tail, body, 1, -1, NOW_MS, HOST),
        ]
        entries = [entry for error, entry in offers if not error]
        made = twin.RecordBuilder(HOST, 1, 0).build(entries, 0, 0, NOW_MS, 1 << 30)
        built.append((made, [error for error, _ in offers], tail.units, tail.positions))
    assert built[0] == built[1]
    (log, placed), errors = built[0][0], built[0][1]
    found = hot.scan_records(log, 0)
    assert (found.end, len(found.views)) == (len(log), len(placed))
    assert len(hot.metaq_block([log[v.at : v.at + v.size] for v in found.views])) == sum(
        view.metaq_size for view in found.views
    )
    return tuple(errors)


def inflation(data: bytes) -> Hashable:
    """A compressed body is inflated within the limit or refused, whatever its type bits."""
    kinds = []
    for kind in (0, 0x100, 0x200, 0x300, 0x400):
        error, inflated = _outcome(inflate, data, kind | 1, 1 << 16)
        assert error or len(inflated) <= 1 << 16
        kinds.append(error[:12])
    return tuple(kinds)


def _seeds() -> dict[str, list[bytes]]:
    log = sample_log(compressed=True)
    views = PLAIN.scan_records(log, 0).views
    records = [log[view.at : view.at + view.size] for view in views]
    strings = [log[v.properties_at : v.properties_at + v.properties_size] for v in views]
    strings.append(b"a\x01b\x02__CRC32#\x010123456789\x02__METAQ_ID\x010000000000000001\x02")
    bodies = [compress(b"to compress" * 9, kind) for kind in (0, 0x100, 0x200)]
    return {
        "record.scan": [log, *records[:1]],
        "record.decoding": records,
        "record.metaq": records,
        "record.properties": strings,
        "record.building": [b"body" * 20 + text for text in strings] + [b"\0\0\0\3tagbody"],
        "record.inflation": bodies,
    }


TARGETS: Final[Mapping[str, Callable[[bytes], Hashable]]] = MappingProxyType(
    {
        "record.scan": scan,
        "record.decoding": decoding,
        "record.metaq": metaq,
        "record.properties": properties,
        "record.building": building,
        "record.inflation": inflation,
    }
)
SEEDS: Final[Mapping[str, Sequence[bytes]]] = MappingProxyType(_seeds())
