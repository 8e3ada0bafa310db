"""Protobuf, of one message type: bytes in, values of JSON out.

The type is named in a set of descriptors, which `protoc --include_imports --descriptor_set_out`
writes. Fields have the names of the .proto file; what has no presence is there with its default.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

_WELL_KNOWN: Final = "google.protobuf."


class ProtobufError(ValueError):
    """A type that is not there, or a body that is not of it."""


@cache
def decoder(descriptors: bytes, name: str) -> Callable[[bytes], Any]:
    """Return what decodes bodies of a message type. ProtobufError: there is no such type."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise ProtobufError(f"the descriptors have no message {name!r}") from None
    except (DecodeError, TypeError) as error:
        raise ProtobufError(f"is no set of descriptors: {error}") from None

    def decode(body: bytes) -> Any:
        try:
            return _values(made.FromString(body))
        except (DecodeError, ValueError, RecursionError) as error:
            raise ProtobufError(str(error)) from None

    return decode


def _values(message: Any) -> dict[str, Any]:
    """Return fields as JSON has them: whole numbers as numbers, as Spark's reader wants them."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.is_repeated and _is_map(field):
            kind = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _value(kind, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, one) for one in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name.startswith(_WELL_KNOWN):
            return MessageToDict(value)  # times as texts
        return _values(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return value
