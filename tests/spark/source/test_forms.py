"""Bodies of Avro and Protobuf become JSON; what is none of the schema is named."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from imago_spark.errors import OptionError
from imago_spark.pipelines.forms.avro import BLOCK_ITEMS_MAX, AvroError, as_json, decoder
from imago_spark.pipelines.forms.choosing import BodyForm, form_of

if TYPE_CHECKING:
    from pathlib import Path

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "amount", "type": ["null", "double"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "scale": 2}},
            {"name": "next", "type": ["null", "Order"]},
        ],
    }
)


def number(value: int) -> bytes:
    """Write a number as Avro does."""
    left = (value << 1) ^ (value >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def order(number_: int, follows: bytes = b"\0") -> bytes:
    parts = [number(number_), number(1), struct.pack("<d", 2.5), number(1_000)]
    parts += [number(2), text("a"), text("ü"), number(0)]
    parts += [number(-1), number(3), text("k"), number(7), number(0)]  # with the block's bytes
    parts += [number(1), b"\xff\x00", number(2), b"\x04\xd2", follows]
    return b"".join(parts)


WANTED = {
    "id": 7,
    "amount": 2.5,
    "at": "1970-01-01T00:00:01+00:00",
    "tags": ["a", "ü"],
    "counts": {"k": 7},
    "kind": "B",
    "mark": "/wA=",
    "price": "12.34",
    "next": None,
}


def test_every_type_of_avro_becomes_json() -> None:
    inner = order(7)
    found = json.loads(as_json(decoder(ORDER)(order(-1, number(1) + inner))))
    assert found == WANTED | {"id": -1, "next": WANTED}


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_are_what_they_were(value: int) -> None:
    assert decoder('"long"')(number(value)) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_an_order_or_named(body: bytes) -> None:
    form = BodyForm("avro", ORDER.encode())
    found, why = form.as_json(body)
    assert (found is None) != (why is None)


def test_what_is_no_order_is_named() -> None:
    whole = order(7)
    for end in range(len(whole)):
        with pytest.raises(AvroError, match="ends too soon"):
            decoder(ORDER)(whole[:end])
    with pytest.raises(AvroError, match="1 bytes are left over"):
        decoder(ORDER)(whole + b"x")
    with pytest.raises(AvroError, match=f"more than {BLOCK_ITEMS_MAX} items"):
        decoder('{"type": "array", "items": "null"}')(number(BLOCK_ITEMS_MAX + 1))
    with pytest.raises(AvroError, match="no branch 2"):
        decoder('["null", "int"]')(number(2))
    with pytest.raises(AvroError, match="not JSON compliant"):
        as_json(decoder('"double"')(struct.pack("<d", float("nan"))))


def descriptors() -> bytes:
    """Return what protoc writes for a message of each kind of field."""
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    made = file.message_type.add(name="Order")
    for at, (name, kind) in enumerate(
        (("id", kinds.TYPE_INT64), ("who", kinds.TYPE_STRING), ("raw", kinds.TYPE_BYTES)), 1
    ):
        made.field.add(name=name, number=at, type=kind, label=kinds.LABEL_OPTIONAL)
    made.field.add(name="ids", number=4, type=kinds.TYPE_INT64, label=kinds.LABEL_REPEATED)
    inner = made.field.add(name="next", number=5, type=kinds.TYPE_MESSAGE)
    inner.type_name, inner.label = ".shop.Order", kinds.LABEL_OPTIONAL
    found: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return found


def test_a_message_of_protobuf_becomes_json() -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file[0])
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    body = made(id=1 << 60, raw=b"\xff", ids=[1, 2], next=made(who="ü")).SerializeToString()
    form = BodyForm("protobuf", descriptors(), "shop.Order", 1)
    found, why = form.as_json(b"!" + body)
    assert why is None
    empty = {"id": 0, "who": "", "raw": "", "ids": []}
    wanted = {"id": 1 << 60, "who": "", "raw": "/w==", "ids": [1, 2]}
    assert json.loads(found or "") == wanted | {"next": empty | {"who": "ü"}}
    assert form.as_json(None) == (None, None)
    assert "is no protobuf of the schema" in str(form.as_json(b"!\xff\xff")[1])


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"bodyFormat": "xml"}, "bodyFormat: 'xml', must be"),
        ({"schemaFile": "/x"}, "config.schemaFile: is of bodyFormat avro or protobuf"),
        ({"bodyFormat": "avro"}, "schemaFile: must be a text"),
        ({"bodyFormat": "avro", "schemaFile": "/none"}, "No such file"),
        ({"bodyFormat": "avro", "schemaFile": "HERE", "headerBytes": 65}, "headerBytes: 65"),
        ({"bodyFormat": "avro", "schemaFile": "HERE"}, "is no schema of Avro"),
        ({"bodyFormat": "protobuf", "schemaFile": "HERE", "message": "m"}, "config.schemaFile:"),
    ],
)
def test_mistakes_of_a_configuration_are_named(
    own: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "schema").write_text('{"type": "nothing"}')
    given = {name: str(tmp_path / "schema") if v == "HERE" else v for name, v in own.items()}
    with pytest.raises(OptionError, match=said):
        form_of(given)
