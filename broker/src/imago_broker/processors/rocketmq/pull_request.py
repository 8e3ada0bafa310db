"""What a pull asks for, read out of its header.

Pulls are what a busy consumer sends most, so the common form is read in one go; whatever differs
from it goes through the header class, which also says what is wrong.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imago_wire.remoting.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH_FIELD = "imagoBatch"
BATCH_MESSAGES_MAX = 10_000
BATCH_BYTES_MAX = 4 << 20
MESSAGES_MAX = 1024
BYTES_MAX = 256 << 10

FLAG_COMMIT = 0x1
FLAG_SUSPEND = 0x2
FLAG_SUBSCRIPTION = 0x4

_NUMBERS = (
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subVersion",
)
_DIGITS_OF_32_BITS = 9
# Nine digits fit 32 bits and 18 fit 64: what is longer is left to the header class.
_PLAIN = re.compile(
    r"[0-9]{1,9},[0-9]{1,18},[0-9]{1,9},[0-9]{1,9},[0-9]{1,18},[0-9]{1,18},[0-9]{1,18}", re.ASCII
)


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
        try:
            text = ",".join([ext[name] for name in _NUMBERS])
            self.group, self.topic = ext["consumerGroup"], ext["topic"]
        except KeyError:
            text = ""
        if _PLAIN.fullmatch(text):
            (
                self.queue_id,
                self.queue_offset,
                wanted,
                self.sys_flag,
                self.commit_offset,
                self.suspend_ms,
                self.sub_version,
            ) = map(int, text.split(","))
        else:
            wanted = self._read_carefully(ext)
        self.subscription = ext.get("subscription", "")
        self.expression_type = ext.get("expressionType")
        self._set_limits(ext, wanted)

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
        """Decide how many messages and bytes one answer may have: at least one message."""
        if ext.get(BATCH_FIELD) == "true":
            messages_max, bytes_max = BATCH_MESSAGES_MAX, BATCH_BYTES_MAX
        else:
            messages_max, bytes_max = MESSAGES_MAX, BYTES_MAX
        self.messages_max = max(1, min(wanted, messages_max))
        asked = ext.get("maxMsgBytes")
        if asked is not None:
            bytes_max = min(_bytes_asked(ext, asked), bytes_max)
        self.bytes_max = bytes_max


def _bytes_asked(ext: Mapping[str, str], text: str) -> int:
    if len(text) <= _DIGITS_OF_32_BITS and text.isascii() and text.isdecimal():
        asked: int | None = int(text)
    else:
        asked = PullMessageRequestHeader.from_ext(ext).max_msg_bytes
    # No limit, or a senseless one, leaves it to the broker.
    return asked if asked is not None and asked > 0 else BATCH_BYTES_MAX
