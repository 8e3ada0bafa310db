"""What is done for each message that is sent: the reference of `_sent_c`.

Most messages are plain: short names, text that is sound, nothing that waits. `_sent_c` sees that
they are and has them ready at once; here all of them are left to the slow paths, `Message._check`
and `outgoing.prepare_with_care`, which say what is wrong, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from imago_wire.errors import LimitExceededError
from imago_wire.remoting.batches import BatchEntry, encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

MESSAGE_FIELDS: Final = (
    "topic", "body", "tags", "keys", "ordering_key", "delay_level", "deliver_at_ms", "delay_ms",
    "wait_stored", "flag", "properties",
)  # fmt: skip
RESULT_FIELDS: Final = (
    "status", "queue", "offset", "message_id", "stored_id", "recall_handle", "trace_region",
)  # fmt: skip


def fill_message(message: object, values: tuple[Any, ...]) -> bool:
    """Set the fields of a new message; return whether it is known to be sound."""
    for name, value in zip(MESSAGE_FIELDS, values, strict=True):
        object.__setattr__(message, name, value)
    return False


def prepare_plain(
    kind: type[T],  # noqa: ARG001
    usual: tuple[Any, ...],  # noqa: ARG001
    message: object,  # noqa: ARG001
    key: str,  # noqa: ARG001
    born_ms: int,  # noqa: ARG001
    body_bytes_max: int,  # noqa: ARG001
    properties_bytes_max: int,  # noqa: ARG001
) -> T | None:
    """Return a plain message ready for the wire: `usual` and what is its own; None: it needs care.

    `usual`: an Outgoing's code, sys_flag and entries.
    """
    return None


def encode_joined(outgoings: Sequence[Any]) -> bytes:
    """Return the body of a batch request."""
    entries = [BatchEntry(one.body, one.properties.encode(), one.flag) for one in outgoings]
    return encode_batch(entries)


def extend_batch(
    entries: bytes,
    head: bytes,
    first: int,
    end: bytes,
    hexadecimal: bool,
    size_max: int,
) -> bytes:
    """Return a batch request's body with one more property behind those of each message.

    It is `head`, a number that counts from `first`, and `end`; `hexadecimal`: of four digits.
    LimitExceededError: properties of more than `size_max` bytes.
    """
    from imago_wire.remoting.messages import decode_batch  # with it comes what reads records

    form = b"%b%04X%b" if hexadecimal else b"%b%d%b"
    found = []
    for at, (body, properties, flag) in enumerate(decode_batch(entries)):
        extended = properties + form % (head, first + at, end)
        if len(extended) > size_max:
            raise LimitExceededError("properties", size=len(extended), size_max=size_max)
        found.append(BatchEntry(body, extended, flag))
    return encode_batch(found)


def share_results(
    kind: type[T], outgoings: Sequence[Any], stored_ids: Sequence[str], result: T
) -> list[T]:
    """Return the result of a batch for each of its messages, with its own offset and ids."""
    status, queue, offset, _, _, _, region = (getattr(result, name) for name in RESULT_FIELDS)
    return [
        kind(status, queue, offset + at, one.message_id, stored_ids[at], None, region)  # type: ignore[call-arg]  # it is SendResult
        for at, one in enumerate(outgoings)
    ]
