"""One commit-log record as a value: what clients decode, without what builds and scans records."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_wire.compression import inflate as inflate_body
from imago_wire.crc import crc31
from imago_wire.errors import ChecksumError, ProtocolError
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import (
    BODY_BYTES_MAX,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    SYS_COMPRESSED,
)
from imago_wire.record_format.record_fields import read_layout

if TYPE_CHECKING:
    from imago_wire.crc import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """Every field of one record."""

    size: int
    """Of the record, in bytes."""
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    """As stored, also where the body was inflated."""
    born_ms: int
    born_host: bytes
    """Address (4 or 16 bytes), then the port (4)."""
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes = field(repr=False)
    body_crc: int
    """Of the body as stored."""
    properties: dict[str, str]
    """Reserved ones included."""

    @property
    def tags(self) -> str | None:
        """The message's tag: MetaQ's attribute."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """The words of KEYS."""
        return self.properties.get(names.KEYS, "").split()

    @property
    def unique_key(self) -> str | None:
        """The id that the client gave."""
        return self.properties.get(names.UNIQ_KEY)

    @property
    def offset_message_id(self) -> str:
        """The id that says where the message is stored."""
        return offset_message_id(self.store_host, self.physical_offset)


def decode_record(
    data: Buffer,
    at: int = 0,
    *,
    inflate: bool = False,
    verify: bool = True,
    inflate_bytes_max: int = BODY_BYTES_MAX,
) -> StoredMessage:
    """Decode the record at ``at``, with or without our reserved properties.

    RecordError: no whole record. ChecksumError (with ``verify``): the body does not match its
    checksum. With ``inflate`` a compressed body is inflated, up to ``inflate_bytes_max``.
    """
    layout = read_layout(data, at)
    body = bytes(data[layout.body_at : layout.body_at + layout.body_size])
    if verify and crc31(body) != layout.body_crc:
        raise ChecksumError(expected=layout.body_crc, actual=crc31(body))
    if inflate and layout.sys_flag & SYS_COMPRESSED:
        body = inflate_body(body, layout.sys_flag, inflate_bytes_max)
    born_host_at = layout.store_host_at - 8 - layout.born_host_size
    topic = bytes(data[layout.topic_at : layout.topic_at + layout.topic_size])
    return StoredMessage(
        size=layout.size,
        topic=topic.decode("utf-8", "replace"),
        queue_id=layout.queue_id,
        queue_offset=layout.queue_offset,
        physical_offset=layout.physical_offset,
        flag=layout.flag,
        sys_flag=layout.sys_flag,
        born_ms=layout.born_ms,
        born_host=bytes(data[born_host_at : layout.store_host_at - 8]),
        store_ms=layout.store_ms,
        store_host=bytes(data[layout.store_host_at : layout.body_at - 16]),
        reconsume_times=layout.reconsume_times,
        prepared_offset=layout.prepared_offset,
        body=body,
        body_crc=layout.body_crc,
        properties=names.decode(bytes(data[layout.properties_at : at + layout.size])),
    )


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return RocketMQ's offset message id: store host and log offset, 32 or 56 digits."""
    return f"{store_host.hex()}{physical_offset:016x}".upper()


def host_bytes(address: str, port: int) -> bytes:
    """Return address (4 or 16 bytes) and port (4) as records hold them."""
    if not 0 <= port <= 65535:
        raise ProtocolError(f"port {port}")
    try:
        return ipaddress.ip_address(address).packed + port.to_bytes(4, "big")
    except ValueError as error:
        raise ProtocolError(f"{address!r} is no IP address") from error


def host_text(host: bytes) -> str:
    """Return a record's host as ``address:port``, IPv6 addresses in brackets."""
    if len(host) not in (HOST_V4_SIZE, HOST_V6_SIZE):
        raise ProtocolError(f"host of {len(host)} bytes")
    address, port = ipaddress.ip_address(host[:-4]), int.from_bytes(host[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
