"""Fuzz targets of access control: credentials and rules of any bytes are refused or understood."""

from __future__ import annotations

import json
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from imago_broker.model.access.access import AccessKind, Operation, Rights
from imago_broker.model.access.quotas import parse_subject, quotas_from_json, quotas_to_json
from imago_broker.model.access.users import (
    Introduced,
    name_problem,
    rules_from_json,
    rules_to_json,
    token_parts,
)
from imago_broker.model.access.white_addresses import is_listed, list_problem
from imago_broker.server.introductions import IntroductionError, Introductions
from imago_testing.peers.remoting import pull_ext, send_ext
from imago_wire import hot
from imago_wire.errors import ProtocolError
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import encode_frame
from imago_wire.remoting.scanning import _granting_py as plain
from imago_wire.remoting.scanning.granting import UserGrants
from imago_wire.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

HEADER_WORD: Final = struct.Struct(">I")
SECRET: Final = "secret-of-ann"
TARGET: Final = "127.0.0.1:10911"
ADDRESSES: Final = ("10.1.2.3", "2001:db8::1", "::ffff:10.1.2.3")


class _Known(dict[str, UserGrants | None]):
    """Of everybody else nothing is known."""

    def __missing__(self, key: str) -> None:
        return None


class _Topics(dict[str, bool]):
    def __missing__(self, topic: str) -> bool:
        return len(topic) % 2 == 0


GRANTS: Final = _Known(
    {
        "": UserGrants(None, _Topics(), {}),
        "ann": UserGrants.signing(SECRET.encode(), _Topics(), {}),
    }
)


def _outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except ProtocolError as error:
        return str(error)


def signer(data: bytes) -> Hashable:
    """Both twins take a request, its credentials and its signature alike."""
    if len(data) < HEADER_WORD.size:
        return None
    (word,) = HEADER_WORD.unpack_from(data)
    end = HEADER_WORD.size + (word & 0xFFFFFF)
    header, body = data[:end], data[end:]
    if len(header) < end:
        return "short"
    found = _outcome(plain.signer, header, body, GRANTS)
    assert _outcome(hot.signer, header, body, GRANTS) == found
    return found[:24] if isinstance(found, str) else found and found.secret


def _introductions() -> Introductions:
    return Introductions(
        key=lambda: "sesame", epoch_ms=lambda: 1_800_000_000_000, random_bytes=bytes
    )


def introduction(data: bytes) -> Hashable:
    """Who is introduced is whom a broker of ours introduced, and nobody else."""
    try:
        found = _introductions().read(data, TARGET)
    except IntroductionError as error:
        return str(error)[:24]
    if found is None:
        return "part"
    client, end = found
    assert _introductions().written(client, TARGET) == data[:end]
    return client


def token(data: bytes) -> Hashable:
    """A token of any text has three parts or none; a name that may be is short ASCII."""
    text = data.decode(errors="surrogateescape")
    parts = token_parts(text)
    assert parts is None or all(parts)
    problem = name_problem(text)
    assert problem is not None or (text.isascii() and text.isprintable() and "/" not in text)
    return (parts is None, (problem or "")[:24])


def rules(data: bytes) -> Hashable:
    """Rules that were read are written so that they read the same, and decide any request."""
    try:
        found = rules_from_json(json.loads(data))
    except (ValueError, RecursionError) as error:
        return str(error)[:16]
    assert rules_from_json(rules_to_json(found)) == found
    rights = Rights(found)
    return tuple(
        rights.allows(operation, kind, "orders-1", address)
        for operation in (Operation.PUBLISH, Operation.ADMINISTER)
        for kind in AccessKind
        for address in ADDRESSES
    )


def quotas(data: bytes) -> Hashable:
    """A subject and its limits are refused, or read the same once they were written."""
    words, _, told = data.partition(b"\n")
    try:
        subject = parse_subject(words.decode(errors="surrogateescape"))
        limits = quotas_from_json(subject, json.loads(told))
    except (ValueError, RecursionError) as error:
        return str(error)[:16]
    assert parse_subject(str(subject)) == subject
    assert quotas_from_json(subject, quotas_to_json(limits)) == limits
    return (subject.kind, subject.prefix, frozenset(limits))


def addresses(data: bytes) -> Hashable:
    """A list of addresses of 4.9's form is refused, or tells who is on it."""
    entries = data.decode(errors="surrogateescape").split("\n")
    problem = list_problem(entries)
    listed = tuple(is_listed(address, entries) for address in ADDRESSES)
    return ((problem or "").partition(":")[0][-24:], listed)


def _requests() -> list[bytes]:
    found = []
    for code, ext in (
        (310, send_ext("orders")),
        (11, pull_ext("orders", 0)),
        (105, {"topic": "x"}),
    ):
        for form in SerializeType:
            texts = {name: str(value) for name, value in ext.items()}
            for user, secret in (("ann", SECRET), ("ann", "wrong"), ("eve", SECRET)):
                fields = signed(texts, b"hello", access_key=user, secret=secret)
                command = RemotingCommand(code=code, ext=fields, body=b"hello", serialize=form)
                found.append(encode_frame(command)[HEADER_WORD.size :])
    return found


def _seeds() -> dict[str, list[bytes]]:
    rule = {"resource": {"type": "Topic", "name": "orders", "patternType": "prefix"}}
    given = [
        {**rule, "operations": ["publish", "subscribe"], "hosts": ["10.0.0.0/8", "2001:db8::/32"]},
        {"effect": "Deny", "resource": {"type": "Cluster"}, "operations": ["all"]},
    ]
    clients = (Introduced("ann", "10.1.2.3", 4711), Introduced("", "", 0))
    limits = {"producerBytesPerSecond": 1 << 20, "connections": 20}
    return {
        "access.signer": _requests(),
        "access.introduction": [_introductions().written(one, TARGET) for one in clients],
        "access.token": [b"imt.ann.0123456789ab.secret", b"ann@example.org", b"root"],
        "access.rules": [json.dumps(given).encode(), json.dumps(given[1:]).encode(), b"[]"],
        "access.quotas": [
            b"user:ann\n" + json.dumps(limits).encode(),
            b'topic:orders*\n{"topics": 10, "queues": 80}',
            b'group:readers*\n{"groups": 3}',
        ],
        "access.addresses": [b"10.1.2.3\n10.1.2-5.*\n10.1.2.{3,4}\n*", b"2001:db8::*\n::1-ffff"],
    }


TARGETS: Final[Mapping[str, Callable[[bytes], Hashable]]] = MappingProxyType(
    {
        "access.signer": signer,
        "access.introduction": introduction,
        "access.token": token,
        "access.rules": rules,
        "access.quotas": quotas,
        "access.addresses": addresses,
    }
)
SEEDS: Final[Mapping[str, Sequence[bytes]]] = MappingProxyType(_seeds())
