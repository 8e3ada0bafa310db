"""A certificate that signs itself, for clients that want TLS and ask for nobody's word.

Pure: the numbers that have to be secret are arguments. The curve is P-256, the signature ECDSA with
SHA-256 (FIPS 186-5), the forms are those of RFC 5280 and RFC 5915.
"""

from __future__ import annotations

import base64
import hashlib
import textwrap
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Secret numbers are below it, and above 0."""
_POINT: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_ECDSA: Final = bytes.fromhex("06082a8648ce3d040302")
_EC_KEY: Final = bytes.fromhex("06072a8648ce3d0201")
_P256: Final = bytes.fromhex("06082a8648ce3d030107")
_COMMON_NAME: Final = bytes.fromhex("0603550403")
_VALID: Final = timedelta(days=3650)
_INTEGER, _BITS, _OCTETS, _UTF8, _SEQUENCE, _SET, _TIME = 2, 3, 4, 12, 48, 49, 24

_Point = tuple[int, int] | None


class Secrets(NamedTuple):
    """Numbers that nobody else may know or guess, each from 1 to `ORDER` - 1."""

    key: int
    once: int
    """Of the one signature; used twice it would tell the key."""
    serial: int
    """Of 64 bits; this one may be known."""


def self_signed(name: str, now: datetime, secrets: Secrets) -> tuple[str, str]:
    """Return a certificate and its key, both in PEM, valid from a day ago for ten years."""
    public = _times(secrets.key, _POINT)
    assert public is not None, "the secret is below the order"
    point = b"\x04" + public[0].to_bytes(32, "big") + public[1].to_bytes(32, "big")
    algorithm = _der(_SEQUENCE, _ECDSA)
    subject = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME, _der(_UTF8, name.encode()))))
    validity = _der(_SEQUENCE, _time(now - timedelta(days=1)), _time(now + _VALID))
    key_info = _der(_SEQUENCE, _der(_SEQUENCE, _EC_KEY, _P256), _der(_BITS, b"\0", point))
    version = _der(0xA0, _integer(2))
    serial = _integer(secrets.serial)
    told = _der(_SEQUENCE, version, serial, algorithm, subject, validity, subject, key_info)
    signature = _der(_BITS, b"\0", _signed(told, secrets))
    whole = _der(_SEQUENCE, told, algorithm, signature)
    key = _der(
        _SEQUENCE,
        _integer(1),
        _der(_OCTETS, secrets.key.to_bytes(32, "big")),
        _der(0xA0, _P256),
        _der(0xA1, _der(_BITS, b"\0", point)),
    )
    return _pem("CERTIFICATE", whole), _pem("EC PRIVATE KEY", key)


def _signed(data: bytes, secrets: Secrets) -> bytes:
    digest = int.from_bytes(hashlib.sha256(data).digest(), "big")
    point = _times(secrets.once, _POINT)
    assert point is not None, "the secret is below the order"
    r = point[0] % ORDER
    s = pow(secrets.once, -1, ORDER) * (digest + r * secrets.key) % ORDER
    assert r, "one chance in 2^256"
    assert s, "one chance in 2^256"
    return _der(_SEQUENCE, _integer(r), _integer(s))


def _times(number: int, point: _Point) -> _Point:
    total: _Point = None
    while number:
        if number & 1:
            total = _sum(total, point)
        point = _sum(point, point)
        number >>= 1
    return total


def _sum(one: _Point, other: _Point) -> _Point:
    if one is None:
        return other
    if other is None:
        return one
    (x, y), (v, w) = one, other
    if x == v:
        if (y + w) % _P == 0:
            return None
        slope = (3 * x * x - 3) * pow(2 * y, -1, _P) % _P
    else:
        slope = (w - y) * pow(v - x, -1, _P) % _P
    at = (slope * slope - x - v) % _P
    return at, (slope * (x - at) - y) % _P


def _der(tag: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    size = len(data)
    if size < 128:
        return bytes((tag, size)) + data
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 128 | len(length))) + length + data


def _integer(value: int) -> bytes:
    return _der(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _time(moment: datetime) -> bytes:
    return _der(_TIME, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _pem(what: str, data: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 64))
    return f"-----BEGIN {what}-----\n{lines}\n-----END {what}-----\n"
