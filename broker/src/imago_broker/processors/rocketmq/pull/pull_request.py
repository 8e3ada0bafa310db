"""What a pull asks for, read out of its header.

Pulls are what a busy consumer sends most, so the common form is read in one go; whatever differs
from it goes through the header class, which also says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.remoting.headers.pull import PullMessageRequestHeader
from imago_wire.remoting.scanning.pulls import BATCH_FIELD, pull_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_wire.remoting.scanning.items import AskedPull

BATCH_MESSAGES_MAX = 10_000
BATCH_BYTES_MAX = 4 << 20
MESSAGES_MAX = 1024
BYTES_MAX = 256 << 10

FLAG_COMMIT = 0x1
FLAG_SUSPEND = 0x2
FLAG_SUBSCRIPTION = 0x4

_DIGITS_OF_32_BITS = 9


class PullRequest:
    """One pull. Offsets count messages; times are in milliseconds."""

    __slots__ = (
        "bytes_max",
        "commit_offset",
        "expression_type",
        "group",
        "messages_max",
        "queue_id",
        "queue_offset",
        "sub_version",
        "subscription",
        "suspend_ms",
        "sys_flag",
        "topic",
    )

    def __init__(self, ext: Mapping[str, str]) -> None:
        """Read the header; HeaderFieldError names the field that is missing or wrong."""
        numbers = pull_numbers(ext)
        group, topic = ext.get("consumerGroup"), ext.get("topic")
        if numbers is not None and group is not None and topic is not None:
            self.group, self.topic = group, topic
            (
                self.queue_id,
                self.queue_offset,
                wanted,
                self.sys_flag,
                self.commit_offset,
                self.suspend_ms,
                self.sub_version,
            ) = numbers
        else:
            wanted = self._read_carefully(ext)
        self.subscription = ext.get("subscription", "")
        self.expression_type = ext.get("expressionType")
        self._set_limits(ext, wanted)

    @classmethod
    def of(cls, asked: AskedPull) -> PullRequest:
        """Return what a pull asks for that the scanner has read."""
        request = cls.__new__(cls)
        request.group, request.topic = asked.group, asked.topic
        request.queue_id, request.queue_offset = asked.queue_id, asked.queue_offset
        request.sys_flag, request.sub_version = asked.sys_flag, asked.sub_version
        request.commit_offset, request.suspend_ms = asked.commit_offset, asked.suspend_ms
        request.subscription, request.expression_type = asked.subscription, asked.expression_type
        request.messages_max, request.bytes_max = answer_limits(
            asked.messages_max, asked.bytes_max, batch=asked.batch
        )
        return request

    @property
    def commits(self) -> bool:
        """Whether the pull also says how far its group has come."""
        return bool(self.sys_flag & FLAG_COMMIT) and self.commit_offset >= 0

    def _read_carefully(self, ext: Mapping[str, str]) -> int:
        header = PullMessageRequestHeader.from_ext(ext)
        self.group, self.topic = header.consumer_group, header.topic
        self.queue_id, self.queue_offset = header.queue_id, header.queue_offset
        self.sys_flag, self.sub_version = header.sys_flag, header.sub_version
        self.commit_offset = header.commit_offset
        self.suspend_ms = header.suspend_timeout_millis
        return header.max_msg_nums

    def _set_limits(self, ext: Mapping[str, str], wanted: int) -> None:
        asked = ext.get("maxMsgBytes")
        size = 0 if asked is None else _bytes_asked(ext, asked)
        batch = ext.get(BATCH_FIELD) == "true"
        self.messages_max, self.bytes_max = answer_limits(wanted, size, batch=batch)


def answer_limits(messages: int, size: int, *, batch: bool) -> tuple[int, int]:
    """Return how many messages and bytes one answer may have: at least one message.

    `messages` and `size` are what the pull asks for; 0 or less leaves the size to the broker.
    """
    if batch:
        messages_max, bytes_max = BATCH_MESSAGES_MAX, BATCH_BYTES_MAX
    else:
        messages_max, bytes_max = MESSAGES_MAX, BYTES_MAX
    return max(1, min(messages, messages_max)), min(size, bytes_max) if size > 0 else bytes_max


def _bytes_asked(ext: Mapping[str, str], text: str) -> int:
    if len(text) <= _DIGITS_OF_32_BITS and text.isascii() and text.isdecimal():
        return int(text)
    return PullMessageRequestHeader.from_ext(ext).max_msg_bytes or 0
