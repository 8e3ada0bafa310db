"""Command headers to and from bytes, in both forms.

JSON (type 0): one object with the keys code, extFields, flag, language, opaque, remark,
serializeTypeCurrentRPC, version; written in that order without spaces, read in any order.
ROCKETMQ (type 1), big-endian: i16 code, u8 language, i16 version, i32 opaque, i32 flag,
i32 remark size + remark, i32 ext size + entries of i16 key size, key, i32 value size, value.

Readers are as tolerant as the original servers are: numbers and booleans as ext values (the C++
client), raw control characters in strings, unknown languages, missing keys.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, cast

import orjson

from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.remoting import fastjson
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.peer import Language, language_of

if TYPE_CHECKING:
    from imago_wire.remoting.fastjson import Json

HEADER_SIZE_MAX: Final = (1 << 24) - 1
"""The header word keeps 24 bits for the size."""

_FIXED: Final = struct.Struct(">hBhiii")
_SIZE: Final = struct.Struct(">i")
_KEY_SIZE: Final = struct.Struct(">h")
_INT_MAX: Final = (1 << 31) - 1
_SHORT_MAX: Final = (1 << 15) - 1


def encode_header(command: RemotingCommand) -> bytes:
    """Return the header in the command's own form, without the header word."""
    if command.serialize is SerializeType.ROCKETMQ:
        encoded = _encode_binary(command)
    else:
        encoded = _encode_json(command)
    if len(encoded) > HEADER_SIZE_MAX:
        raise LimitExceededError("header", size=len(encoded), size_max=HEADER_SIZE_MAX)
    return encoded


def decode_header(serialize: int, header: bytes, body: bytes = b"") -> RemotingCommand:
    """Return the command of one frame's header and body. ProtocolError: close the connection."""
    if serialize == SerializeType.JSON:
        return _decode_json(header, body)
    if serialize == SerializeType.ROCKETMQ:
        return _decode_binary(header, body)
    raise ProtocolError(f"unknown header form {serialize}")


def decode_raw_header(raw_header: bytes, body: bytes = b"") -> RemotingCommand:
    """Return the command of a header that still carries its 4-byte header word."""
    return decode_header(raw_header[0], raw_header[4:], body)


def _encode_json(command: RemotingCommand) -> bytes:
    fields: dict[str, object] = {"code": command.code}
    if command.ext:
        fields["extFields"] = command.ext
    fields["flag"] = command.flag
    if command.language is not Language.UNKNOWN:
        fields["language"] = command.language.name
    fields["opaque"] = command.opaque
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["serializeTypeCurrentRPC"] = "JSON"
    fields["version"] = command.version
    return orjson.dumps(fields)


def _decode_json(header: bytes, body: bytes) -> RemotingCommand:
    fields = fastjson.parse(header)
    if not isinstance(fields, dict):
        raise ProtocolError("the header is not a JSON object")
    remark, language = fields.get("remark"), fields.get("language")
    return RemotingCommand(
        code=_json_int(fields, "code"),
        flag=_json_int(fields, "flag"),
        opaque=_json_int(fields, "opaque"),
        version=_json_int(fields, "version"),
        language=language_of(language),
        remark=None if remark is None else _json_text(remark),
        ext=_json_ext(fields.get("extFields")),
        body=body,
        serialize=SerializeType.JSON,
    )


def _json_int(fields: dict[str, Json], name: str) -> int:
    value = fields.get(name, 0)
    if type(value) is int and -_INT_MAX - 1 <= value <= _INT_MAX:
        return value
    raise ProtocolError(f"header field {name} is not a 32-bit number")


def _json_ext(ext: Json) -> dict[str, str]:
    if ext is None:
        return {}
    if not isinstance(ext, dict):
        raise ProtocolError("extFields is not a JSON object")
    if set(map(type, ext.values())) == {str}:
        return cast("dict[str, str]", ext)
    return {name: _json_text(value) for name, value in ext.items() if value is not None}


def _json_text(value: Json) -> str:
    return value if isinstance(value, str) else fastjson.dump(value).decode()


def _encode_binary(command: RemotingCommand) -> bytes:
    if not -_SHORT_MAX - 1 <= command.code <= _SHORT_MAX:
        raise ProtocolError(f"code {command.code} does not fit a ROCKETMQ header")
    language = Language.OTHER if command.language is Language.UNKNOWN else command.language
    remark = (command.remark or "").encode()
    ext = b"".join(_binary_entry(name, value) for name, value in command.ext.items())
    fixed = _FIXED.pack(
        command.code, language, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join((fixed, remark, _SIZE.pack(len(ext)), ext))


def _binary_entry(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    if len(key) > _SHORT_MAX:
        raise LimitExceededError("ext key", size=len(key), size_max=_SHORT_MAX)
    return b"".join((_KEY_SIZE.pack(len(key)), key, _SIZE.pack(len(text)), text))


def _decode_binary(header: bytes, body: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
        remark_end = _end(_FIXED.size, remark_size, len(header))
        (ext_size,) = _SIZE.unpack_from(header, remark_end)
        ext_at = remark_end + _SIZE.size
        ext = _binary_ext(header, ext_at, _end(ext_at, ext_size, len(header)))
    except struct.error:
        raise ProtocolError("the header ends too early") from None
    remark = header[_FIXED.size : remark_end].decode(errors="replace")
    return RemotingCommand(
        code=code,
        flag=flag,
        opaque=opaque,
        version=version,
        language=language_of(language),
        remark=remark or None,
        ext=ext,
        body=body,
        serialize=SerializeType.ROCKETMQ,
    )


def _binary_ext(header: bytes, at: int, end: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while at < end:
        key_at = at + _KEY_SIZE.size
        key_end = _end(key_at, _KEY_SIZE.unpack_from(header, at)[0], end)
        value_at = key_end + _SIZE.size
        at = _end(value_at, _SIZE.unpack_from(header, key_end)[0], end)
        name = header[key_at:key_end].decode(errors="replace")
        ext[name] = header[value_at:at].decode(errors="replace")
    return ext


def _end(start: int, size: int, limit: int) -> int:
    if size < 0 or start + size > limit:
        raise ProtocolError("a size in the header points outside of it")
    return start + size
