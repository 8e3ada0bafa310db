"""What keeps a mirror from its work, in words: the cause, and what to do."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_client.errors import BrokerError, ClientError, TryAgainError
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

SOURCE: Final = "source"
TARGET: Final = "target"
TROUBLES_MAX: Final = 1000
"""Subjects that are remembered; more are counted as of these."""
_RIGHTS: Final = (
    "imago user allow gives the mirror's user its rights; docs/mirror.md lists them. Its name and"
    " password file stand in the section [{side}]"
)
_CURES: Final = {
    "SourceAway": "nothing, if the source is down: the mirror goes on when it is back. Else see"
    " source.bootstrap. To go on without it: imago mirror failover",
    "TargetAway": "nothing, if the target is down: the mirror goes on when it is back, and nothing"
    " is lost as long as the source keeps its messages. Else see target.bootstrap",
    "SourceRefused": _RIGHTS.format(side="source"),
    "TargetRefused": _RIGHTS.format(side="target"),
    "SameCluster": "name another cluster in target.bootstrap",
    "TopicMissing": "make the topic at the source, or take it out of mirror.topics",
    "NotMirrored": "take it out of mirror.topics: such topics stay in their cluster",
    "MessagesExpired": "they cannot be had back; keep messages longer at the source, or find out"
    " why the mirror fell so far behind",
    "SourceWentBack": "the source has lost messages that were copied; the mirror goes on by itself",
    "MessageRefused": "raise the target's limit for messages (rocketmq.message_bytes_max), or see"
    " what it says",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """One cause, of one subject."""

    reason: str
    subject: str
    message: str

    @property
    def cure(self) -> str:
        return _CURES.get(self.reason, "")


class MirrorTroubles:
    """Those that there are now. Each is logged once when it comes, and once when it has gone."""

    def __init__(self) -> None:
        self._by_subject: dict[tuple[str, str], Trouble] = {}

    def all(self) -> list[Trouble]:
        return list(self._by_subject.values())

    def note(self, reason: str, subject: str, message: str) -> None:
        key, message = (reason, subject), message.removesuffix(".")
        if key not in self._by_subject:
            if len(self._by_subject) >= TROUBLES_MAX:
                return
            log.warning("mirror_trouble reason=%s subject=%s %s", reason, subject, message)
        self._by_subject[key] = Trouble(reason, subject, message)

    def end(self, subject: str, *, but: str = "") -> None:
        """Note that nothing is wrong with a subject any more, `but` for one reason."""
        for reason, of in list(self._by_subject):
            if of == subject and reason != but:
                self.over(reason, subject)

    def over(self, reason: str, subject: str) -> None:
        """Note that this is not so any more, whatever else is."""
        if self._by_subject.pop((reason, subject), None) is not None:
            log.info("mirror_trouble_over reason=%s subject=%s", reason, subject)

    @contextmanager
    def at(self, side: str, subject: str) -> Iterator[None]:
        """Note what goes wrong in this block with one side; the error goes on."""
        try:
            yield
        except (ClientError, ProtocolError) as error:
            self.note(reason_of(side, error), subject, str(error))
            raise


def reason_of(side: str, error: Exception) -> str:
    """Return what an error of one side means for the mirror."""
    word = side.capitalize()
    if isinstance(error, BrokerError):
        if error.code == ResponseCode.MESSAGE_ILLEGAL:
            return "MessageRefused"
        away = error.code in (
            ResponseCode.SYSTEM_BUSY,
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.SLAVE_NOT_AVAILABLE,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            ResponseCode.FLUSH_DISK_TIMEOUT,
            ResponseCode.GO_AWAY,
        )
        return f"{word}Away" if away else f"{word}Refused"
    return f"{word}Away" if isinstance(error, TryAgainError) else f"{word}Refused"
