"""What became of a pull, as a value: decided here, encoded once, by `PullOutcome.reply`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from imago_broker.service.groups.channel import Reply
from imago_log.results import ReadStatus
from imago_wire.remoting.bodies.route import MASTER_ID
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_log.results import ReadResult

REDIRECT_FIELD: Final = "imagoNotMaster"
"""Tells clients of our own to read the route again."""


class PullResult(Enum):
    """How a pull ended, and the code of its answer."""

    code: ResponseCode

    FOUND = "messages", ResponseCode.SUCCESS
    NOTHING = "no message is there yet: the pull may wait", ResponseCode.PULL_NOT_FOUND
    PASSED_OVER = "the tags match nothing of what was read", ResponseCode.PULL_RETRY_IMMEDIATELY
    COMING = "it is being fetched from the bucket: the pull waits", ResponseCode.SYSTEM_BUSY
    AWAY = "the bucket that has it does not answer", ResponseCode.SYSTEM_BUSY
    OFFSET_MOVED = "the client goes on at another offset", ResponseCode.PULL_OFFSET_MOVED
    RESET = "the group was reset: its client's own place is void", ResponseCode.PULL_OFFSET_MOVED
    REDIRECTED = "the master serves it", ResponseCode.PULL_RETRY_IMMEDIATELY
    REFUSED = "the refusal has a code of its own", ResponseCode.SYSTEM_ERROR

    def __init__(self, _meaning: str, code: ResponseCode) -> None:
        self.code = code


# Bound once: an enumeration finds its members again each time that they are named.
FOUND, NOTHING, OFFSET_MOVED = PullResult.FOUND, PullResult.NOTHING, PullResult.OFFSET_MOVED
RESET, REDIRECTED, COMING = PullResult.RESET, PullResult.REDIRECTED, PullResult.COMING
_READ: Final = ReadStatus.FOUND

_OF_STATUS: Final = {
    ReadStatus.NO_MATCHED_MESSAGE: PullResult.PASSED_OVER,
    ReadStatus.MESSAGE_WAS_REMOVING: PullResult.PASSED_OVER,
    ReadStatus.OFFSET_FOUND_NULL: PullResult.NOTHING,
    ReadStatus.OFFSET_OVERFLOW_ONE: PullResult.NOTHING,
    ReadStatus.OFFSET_OVERFLOW_BADLY: PullResult.OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: PullResult.OFFSET_MOVED,
    ReadStatus.ON_ITS_WAY: PullResult.COMING,
    ReadStatus.REMOTE_AWAY: PullResult.AWAY,
}
AWAY_REPLY: Final = Reply(
    ResponseCode.SYSTEM_BUSY,
    "these old messages are in the bucket, which does not answer now: try again later",
)
_EMPTY: Final = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)


def result_of(status: ReadStatus, asked_offset: int) -> PullResult:
    """Return what a read's status means to the pull that asked for it."""
    if status is _READ:
        return FOUND
    if status in _EMPTY:
        # Nobody may be sent back from 0: the queue is only new.
        return OFFSET_MOVED if asked_offset else NOTHING
    return _OF_STATUS[status]


@dataclass(slots=True)
class PullOutcome:
    """How a pull ended, and all that its answer says."""

    result: PullResult
    remark: str = ""
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    suggested: int = MASTER_ID
    """Whom the client asks next: a broker id."""
    body: bytes = b""
    refusal: Reply | None = None

    @classmethod
    def of_read(cls, found: ReadResult, asked_offset: int, suggested: int) -> PullOutcome:
        """Return the outcome of a read."""
        if found.status is ReadStatus.REMOTE_AWAY:
            return cls.refused(AWAY_REPLY)
        return cls(
            result_of(found.status, asked_offset),
            found.status.value,
            found.next_offset,
            found.min_offset,
            found.max_offset,
            suggested,
            found.body,
        )

    @classmethod
    def redirected(cls, offset: int, master: int) -> PullOutcome:
        """Have the consumer ask the master, under this id, for the same place."""
        return cls(
            result=PullResult.REDIRECTED,
            remark="NOT_THE_MASTER",
            next_offset=offset,
            max_offset=offset,
            suggested=master,
        )

    @classmethod
    def refused(cls, refusal: Reply) -> PullOutcome:
        """Answer with a refusal."""
        return cls(result=PullResult.REFUSED, refusal=refusal)

    @property
    def may_wait(self) -> bool:
        """Whether a pull that is held goes on waiting: nothing came that is for it.

        Where one look did not reach the queue's end, the client comes again at once instead.
        """
        if self.result is PullResult.PASSED_OVER and self.next_offset < self.max_offset:
            return False
        return self.result in _WAITS

    def reply(self) -> Reply:
        """Return the answer: clients need the first four fields on every outcome."""
        if self.refusal is not None:
            return self.refusal
        ext = {
            "suggestWhichBrokerId": str(self.suggested),
            "nextBeginOffset": str(self.next_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        if self.result is REDIRECTED:
            ext[REDIRECT_FIELD] = "true"
        return Reply(self.result.code, self.remark, ext, self.body)


_WAITS: Final = (NOTHING, COMING, PullResult.PASSED_OVER, REDIRECTED)
