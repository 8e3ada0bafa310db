"""Pulls straight from a read, and the head of their answers: the plain Python reference.

`_remoting_c` has the compiled twin, with the same results on every input. `imago_wire.hot` chooses.
"""

from __future__ import annotations

import re
from typing import Final

from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.header import decode_raw_header, encode_header
from imago_wire.remoting.scanning._remoting_py import whole_frame
from imago_wire.remoting.scanning.items import AskedPull
from imago_wire.remoting.scanning.pulls import BATCH_FIELD, pull_numbers

_PLAIN_BYTES: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_LENGTH_SIZE: Final = 4
_FOUND: Final = "FOUND"


def plain_pull(data: bytes | bytearray, at: int, frame_bytes_max: int) -> AskedPull | None:
    """Return the pull that stands at a place of a read.

    None where something else stands there, or a pull that is not whole, has a body, wants no
    answer or needs a closer look at its fields.
    """
    try:
        found = whole_frame(data, at, frame_bytes_max)
        if found is None:
            return None
        command = decode_raw_header(*found)
    except ProtocolError:
        return None
    if command.code != RequestCode.PULL_MESSAGE or command.flag & 3 or command.body:
        return None
    ext = command.ext
    numbers = pull_numbers(ext)
    group, topic, size_max = ext.get("consumerGroup"), ext.get("topic"), ext.get("maxMsgBytes")
    if numbers is None or group is None or topic is None:
        return None
    if size_max is not None and not _PLAIN_BYTES.fullmatch(size_max):
        return None
    return AskedPull(
        _LENGTH_SIZE + len(found[0]),
        command.opaque,
        command.serialize.value,
        group,
        topic,
        *numbers,
        -1 if size_max is None else int(size_max),
        ext.get("subscription", ""),
        ext.get("expressionType"),
        ext.get(BATCH_FIELD) == "true",
    )


def answer_pull(
    opaque: int,
    serialize: int,
    offsets: tuple[int, int, int],
    suggested: int,
    body_size: int,
) -> bytes:
    """Return what stands before the records in the frame that answers a pull which found some.

    `offsets`: the next one to ask for, the queue's smallest and its end; `suggested`: whom to ask.
    """
    following, low, high = offsets
    ext = {
        "suggestWhichBrokerId": str(suggested),
        "nextBeginOffset": str(following),
        "minOffset": str(low),
        "maxOffset": str(high),
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    command = RemotingCommand(
        code=0,
        flag=FLAG_RESPONSE,
        opaque=opaque,
        remark=_FOUND,
        ext=ext,
        serialize=SerializeType(serialize),
    )
    header = encode_header(command)
    size = _LENGTH_SIZE + len(header) + body_size
    word = serialize << 24 | len(header)
    return b"%b%b%b" % (size.to_bytes(4, "big"), word.to_bytes(4, "big"), header)
