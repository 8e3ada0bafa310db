"""The fast path of a pull: without a command object or a map of header fields.

Pulls are answered straight from the bytes of a read, one after the other; one that stands at the
end of its queue is held, and answered in the same way by the append that brings a message. A pull
that is to be refused or sent elsewhere, that a filter over properties goes with, or whose group was
reset: all of these are left to the table, and nothing of them has happened here.
"""

from __future__ import annotations

import logging
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from imago_broker.model.topics.topics import PERM_READ
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.processors.rocketmq.pull.held_pull import HeldPull
from imago_broker.processors.rocketmq.pull.pull_request import (
    FLAG_COMMIT,
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    answer_limits,
)
from imago_broker.processors.rocketmq.pull.subscriptions import TAGS_OF_ONE
from imago_broker.service.serving_rules import Asks
from imago_log.results import ReadStatus
from imago_wire.hot import answer_pull, plain_pull, signer
from imago_wire.remoting.bodies.route import MASTER_ID
from imago_wire.remoting.texts.subscriptions import ALL, TAG

if TYPE_CHECKING:
    from collections.abc import Container

    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.processors.rocketmq.pull.held_pull import PullingChannel, Tags
    from imago_broker.processors.rocketmq.pull.pull import PullProcessor
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.service.groups.groups import GroupService
    from imago_log.results import ReadResult
    from imago_wire.remoting.scanning.granting import Grants
    from imago_wire.remoting.scanning.items import AskedPull

logger = logging.getLogger(__name__)

# Bound once: an enumeration finds its members again each time that they are named.
PREFIX_SIZE: Final = 4
"""What stands in front of a header's word: the size of its frame."""
_FOUND, _AT_END = ReadStatus.FOUND, ReadStatus.OFFSET_OVERFLOW_ONE
_MESSAGES: Final = Asks.MESSAGES
_EVERYTHING: Final = frozenset({ALL, ""})
_TAG_TYPES: Final = frozenset({None, "", TAG})


class _CloserLookError(Exception):
    """Of a pull that the table serves."""


class PullPath:
    """Answers the pulls of all connections of one port, as far as they need no closer look."""

    def __init__(
        self,
        processor: PullProcessor,
        *,
        groups: GroupService,
        lane: Lane,
        table: Table,
        left_out: Container[str],
    ) -> None:
        """`table` serves what is left, in the same lane, and all pulls of topics `left_out`.

        `processor` is the table's.
        """
        reading = processor.reading
        self._left_out = left_out
        self._groups, self._topics = groups, reading.topics
        self._serving_rules, self._resets = reading.serving_rules, reading.resets
        self._directions, self._traffic = reading.directions, reading.traffic
        self._read = reading.store.read
        self._selector, self._offsets = processor.selector, processor.offsets
        self._budget = processor.budget
        self._lane, self._table, self._processor = lane, table, processor
        self._hold, self._settings = reading.hold, reading.settings

    def take(self, channel: PullingChannel, data: bytes | bytearray, frame_bytes_max: int) -> int:
        """Answer or hold the pulls at the start of a read, as far as they need no closer look.

        Returns how many bytes they fill.
        """
        used = 0
        asked = plain_pull(data, 0, frame_bytes_max)
        if asked is None or not self._serves():
            return 0
        grants = channel.grants
        while asked is not None:
            try:
                if grants is not None and not _may_pull(data, used, asked, grants):
                    break
                goes_on = self._serve(channel, asked)
            except _CloserLookError:
                break
            except Exception:
                # Asked again by the table, which says what is wrong, to the log and to the client.
                logger.debug("pull_left peer=%s topic=%s", channel.peer, asked.topic, exc_info=True)
                break
            used += asked.size
            if not goes_on or used == len(data):
                break
            asked = plain_pull(data, used, frame_bytes_max)
        return used

    def _serve(self, channel: PullingChannel, asked: AskedPull) -> bool:
        """Answer or hold a pull; False: its connection gets no more answers for now."""
        tags = self._tags(asked)
        found = self._find(asked, tags)
        if found.status is _FOUND:
            self._commit(asked)
            return channel.add(self._head(asked, found), found.body)
        if found.status is not _AT_END:
            raise _CloserLookError
        self._hold_on(channel, asked, tags)
        return True

    def _serves(self) -> bool:
        """Whether this broker answers pulls as usual: it is the master, and nobody looks on."""
        rules, lane = self._serving_rules, self._lane
        return (
            not (self._table.hooks and self._table.watched)
            and lane.running < lane.running_max
            and rules.role.current.leads
            and rules.refusal(_MESSAGES) is None
            and not self._resets
        )

    def _tags(self, asked: AskedPull) -> Tags:
        """Return the hashes of the tags that a pull wants."""
        if (
            asked.sys_flag & FLAG_SUBSCRIPTION
            and asked.subscription in _EVERYTHING
            and asked.expression_type in _TAG_TYPES
        ):
            return None
        try:
            tags, wanted = self._selector.select(asked)
        except RequestError:
            raise _CloserLookError from None
        if wanted is not None:
            raise _CloserLookError
        return tags

    def _find(self, asked: AskedPull, tags: Tags) -> ReadResult:
        """Return what a pull finds; `_CloserLookError` where it is not to be served as usual."""
        name = asked.topic
        group, topic = self._groups.get(asked.group), self._topics.get(name)
        budget = self._budget
        if (
            group is None
            or topic is None
            or not group.consume_enable
            or name in group.forbidden_topics
            or name in self._left_out
            or not topic.perm & PERM_READ
            or asked.queue_id >= topic.read_queues
            or budget.held >= budget.bytes_max
        ):
            raise _CloserLookError
        messages_max, bytes_max = answer_limits(
            asked.messages_max, asked.bytes_max, batch=asked.batch
        )
        began_ns = perf_counter_ns()
        found = self._read(
            name,
            asked.queue_id,
            asked.queue_offset,
            messages_max=messages_max,
            bytes_max=bytes_max,
            tags=tags,
        )
        self._traffic.note_read(perf_counter_ns() - began_ns)
        return found

    def _hold_on(self, channel: PullingChannel, asked: AskedPull, tags: Tags) -> None:
        hold_ms = min(asked.suspend_ms, self._settings.current.pull_hold_ms_max)
        if not asked.sys_flag & FLAG_SUSPEND or hold_ms <= 0:
            raise _CloserLookError
        if tags is not None and len(tags) >= TAGS_OF_ONE:
            raise _CloserLookError
        parts = (self._processor, self._lane, self._hold)
        if not HeldPull(channel, asked, tags, self, *parts).wait(hold_ms):
            raise _CloserLookError
        self._traffic.missed += 1
        self._commit(asked)

    def answer_held(self, channel: PullingChannel, asked: AskedPull, tags: Tags) -> bool:
        """Answer a pull that was held with messages; False: it needs a closer look."""
        if not self._serves():
            return False
        try:
            found = self._find(asked, tags)
        except _CloserLookError:
            return False
        if found.status is not _FOUND:
            return False
        channel.add(self._head(asked, found), found.body)
        return True

    def _commit(self, asked: AskedPull) -> None:
        """Note how far the group of a pull has come, where it says so."""
        if asked.sys_flag & FLAG_COMMIT:
            self._offsets.commit(asked.group, asked.topic, asked.queue_id, asked.commit_offset)

    def _head(self, asked: AskedPull, found: ReadResult) -> bytes:
        """Note that a pull is answered; return what stands before its messages."""
        queue_id, body = asked.queue_id, found.body
        suggested = MASTER_ID
        if self._serving_rules.slave_reads:
            suggested = self._directions.after(body, queue_id)
        self._traffic.delivered(asked.group, asked.topic, found.count, len(body))
        offsets = (found.next_offset, found.min_offset, found.max_offset)
        return answer_pull(asked.opaque, asked.serialize, offsets, suggested, len(body))


def _may_pull(data: bytes | bytearray, at: int, asked: AskedPull, grants: Grants) -> bool:
    """Whether the user of the pull at `at` of a read may read what it asks for."""
    user = signer(bytes(data[at + PREFIX_SIZE : at + asked.size]), b"", grants)
    return user is not None and user.consume[asked.topic, asked.group]
