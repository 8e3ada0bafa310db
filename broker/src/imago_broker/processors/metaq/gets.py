"""``get`` and ``offset``: reads by byte position, answered with slices of the store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from imago_broker.core.metaq.metaq_filters import HEADER_SIZE, first_run
from imago_broker.processors.metaq import realtime, texts
from imago_broker.processors.metaq.asks import ASKS
from imago_broker.service.serving_rules import NO_LEASE, UNSETTLED
from imago_log.errors import DiskFullError, StoreClosedError
from imago_log.results import FileSlice, MetaqStatus
from imago_wire.text.commands import OFFSET_END, Get, Offset
from imago_wire.text.encoder import result, value_head
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from imago_broker.core.budget import OutputBudget
    from imago_broker.core.metaq.metaq_filters import GroupFilter
    from imago_broker.processors.metaq.filters import GroupFilters
    from imago_broker.processors.metaq.identity import MetaqFace
    from imago_broker.processors.metaq.patterns import TopicPatterns
    from imago_broker.processors.metaq.peer import Peer
    from imago_log.results import MetaqRead
    from imago_log.store import MessageStore
    from imago_wire.text.items import GetItem

logger = logging.getLogger(__name__)

READS_MAX: Final = 20
"""Topics of one connection that are kept in mind for whoever asks who reads what."""


class GetProcessor:
    """Serves ``get`` and ``offset``."""

    def __init__(
        self,
        *,
        face: MetaqFace,
        store: MessageStore,
        budget: OutputBudget,
        patterns: TopicPatterns,
        filters: GroupFilters,
    ) -> None:
        self._identity, self._settings = face.identity, face.settings
        self._serving_rules = face.serving_rules
        self._counters, self._realtime = face.counters, face.realtime
        self._store, self._topics, self._budget = store, patterns.topics, budget
        self._patterns = patterns
        self._filters = filters.by_topic

    def get(self, peer: Peer, item: GetItem) -> None:
        """Answer one ``get``."""
        _, topic, group, partition, offset, max_size, opaque = item
        self._counters.cmd_get += 1
        self._count(realtime.GET, topic)
        if partition in self._topics.handles.closed_partitions(topic):
            text = texts.get_closed(self._identity.broker_id, partition)
            peer.reply(result(Status.FORBIDDEN, text, opaque))
            return
        refusal = self._serving_rules.refusal(ASKS[Get])
        if refusal is not None:
            self._not_here(peer, item, refusal)
            return
        allowed = self._budget.allowance(max_size)
        if allowed == 0 < max_size:
            peer.reply(result(Status.SERVICE_UNAVAILABLE, texts.BUSY, opaque))
            return
        try:
            read = self._read(topic, partition, offset, allowed)
        except Exception as error:
            self._failed(peer, topic, partition, opaque, error)
            return
        if read.status is MetaqStatus.NO_QUEUE:
            self._miss(topic)
            peer.reply(result(Status.NOT_FOUND, texts.no_store(topic, partition), opaque))
            return
        _note_reader(peer, topic, group)
        if max_size <= 0:
            text = texts.invalid_max_size(max_size)
            peer.reply(result(Status.BAD_REQUEST, text, opaque))
        elif read.status is MetaqStatus.FOUND and read.position == offset:
            self._found(peer, item, read)
        else:
            self._miss(topic)
            self._not_found(peer, item, read)

    def offset(self, peer: Peer, command: Offset) -> None:
        """Answer one ``offset``: a position near the given one from which to go on."""
        self._counters.cmd_offset += 1
        self._count(realtime.OFFSET, command.topic)
        topic, partition = command.topic, command.partition
        refusal = self._serving_rules.refusal(ASKS[Offset])
        if refusal is not None:
            text = texts.put_failed(self._identity.url, topic, partition, refusal)
            peer.reply(result(Status.INTERNAL_SERVER_ERROR, text, command.opaque))
            return
        try:
            low, end = self._store.position_range(topic, partition)
        except Exception as error:
            self._failed(peer, topic, partition, command.opaque, error)
            return
        if end == 0:
            code, text = Status.NOT_FOUND, texts.no_store(topic, partition)
        elif command.offset >= end:
            code, text = Status.SUCCESS, str(end)
        else:
            # The original tells the start of the file that holds the offset; to a client of ours
            # everything stored is one file.
            code, text = Status.SUCCESS, str(low)
        peer.reply(result(code, text, command.opaque))

    def _not_here(self, peer: Peer, item: GetItem, refusal: str) -> None:
        _, topic, _, partition, offset, _, opaque = item
        if refusal in (UNSETTLED, NO_LEASE):
            # In a moment: a consumer that hears "nothing new" keeps its place and comes again.
            peer.reply(result(Status.NOT_FOUND, texts.nothing_at(offset), opaque))
            return
        text = texts.put_failed(self._identity.url, topic, partition, refusal)
        peer.reply(result(Status.INTERNAL_SERVER_ERROR, text, opaque))

    def _read(self, topic: str, partition: int, offset: int, max_size: int) -> MetaqRead:
        """Read at most `max_size` and the transfer limit, but at least one message if asked to.

        A message above the transfer limit would otherwise never reach a client that has made
        room for it.
        """
        transfer_max = self._settings.current.transfer_bytes_max
        limit = max(1, min(max_size, transfer_max))
        read = self._store.read_positions(topic, partition, offset, limit)
        if max_size > transfer_max and read.status is MetaqStatus.FOUND:
            whole = _first_size(read)
            if whole > limit:
                wanted = min(max_size, whole)
                read = self._store.read_positions(topic, partition, offset, wanted)
        if read.behind:
            self._want_files(topic)
        return read

    def _found(self, peer: Peer, item: GetItem, read: MetaqRead) -> None:
        if self._filters and (wanted := self._filters.get(item.topic, {}).get(item.group)):
            self._filtered(peer, item, read, wanted)
            return
        data, opaque = read.data, item.opaque
        if isinstance(data, FileSlice):
            self._counters.bytes_out += data.size
            peer.reply_file(value_head(data.size, opaque), data)
        else:
            self._counters.bytes_out += len(data)
            peer.reply(value_head(len(data), opaque), data)

    def _filtered(self, peer: Peer, item: GetItem, read: MetaqRead, wanted: GroupFilter) -> None:
        """Answer with accepted messages that begin where they were asked for, or send there."""
        _, topic, _, partition, offset, _, opaque = item
        data = _whole(read)
        if len(data) < (size := _size_of(data)):
            # Not one whole message was asked for: whether it is wanted is in all of it.
            read = self._store.read_positions(topic, partition, offset, size)
            data = _whole(read)
        run = first_run(data, wanted)
        if run.start == 0 < run.size:
            self._counters.bytes_out += run.size
            peer.reply(value_head(run.size, opaque), data[: run.size])
            return
        self._counters.cmd_offset += 1
        self._count(realtime.OFFSET, topic)
        peer.reply(result(Status.MOVED, str(offset + run.start), opaque))

    def _not_found(self, peer: Peer, item: GetItem, read: MetaqRead) -> None:
        _, topic, _, _, offset, _, opaque = item
        if read.status is MetaqStatus.REMOTE_AWAY:
            peer.reply(result(Status.SERVICE_UNAVAILABLE, texts.TIER_AWAY, opaque))
            return
        moved_to = self._moved_to(offset, read)
        if moved_to is None:
            peer.reply(result(Status.NOT_FOUND, texts.nothing_at(offset), opaque))
            return
        self._counters.cmd_offset += 1
        self._count(realtime.OFFSET, topic)
        peer.reply(result(Status.MOVED, str(moved_to), opaque))

    def _moved_to(self, offset: int, read: MetaqRead) -> int | None:
        """Return the position that a 301 tells, or None where the answer is 404."""
        if read.status is MetaqStatus.TOO_SMALL:
            return read.min_position
        if read.status is MetaqStatus.LOST:
            return read.position
        if read.position != offset and read.status in (MetaqStatus.FOUND, MetaqStatus.AT_END):
            # Not a message's border. The original would send bytes from the middle of a message,
            # which no client can read; the next border is where it can go on.
            return read.position
        beyond = read.status is MetaqStatus.BEYOND_END
        # The end of a member that does not lead is no place to send a consumer back to.
        to_end = self._settings.current.update_consumer_offsets and self._serving_rules.leads
        told = to_end or offset == OFFSET_END
        return read.max_position if beyond and told else None

    def _want_files(self, topic: str) -> None:
        """Have MetaQ's own files kept of a topic that somebody reads from behind.

        Who reads what was just written gets it from memory, and files would be written for nobody.
        """
        handle = self._topics.handles.of(topic)
        if handle is not None and not handle.config.materialised and self._serving_rules.leads:
            try:
                self._topics.materialise(topic)
            except (DiskFullError, StoreClosedError):
                # A read goes on where nothing can be written; the next one notes it.
                logger.debug("files_not_begun topic=%s", topic)

    def _failed(
        self, peer: Peer, topic: str, partition: int, opaque: int, error: Exception
    ) -> None:
        """Answer a read that the store could not do: the connection is others' too."""
        logger.error("get_failed topic=%s partition=%d", topic, partition, exc_info=error)
        text = texts.put_failed(self._identity.url, topic, partition, str(error))
        peer.reply(result(Status.INTERNAL_SERVER_ERROR, text, opaque))

    def _miss(self, topic: str) -> None:
        self._counters.get_miss += 1
        self._count(realtime.GET_MISS, topic)

    def _count(self, command: str, topic: str) -> None:
        if self._patterns.may_count() and self._patterns.counts(topic):
            self._realtime.add(command, topic)


def _first_size(read: MetaqRead) -> int:
    """Return the size of the first message of a read with its header."""
    data = read.data
    if isinstance(data, FileSlice):
        data = data._replace(size=min(HEADER_SIZE, data.size)).read()
    return _size_of(data)


def _size_of(data: bytes) -> int:
    """Return the size of the message that data begins with, with its header."""
    return HEADER_SIZE + int.from_bytes(data[:4], "big")


def _whole(read: MetaqRead) -> bytes:
    return read.data.read() if isinstance(read.data, FileSlice) else read.data


def _note_reader(peer: Peer, topic: str, group: str) -> None:
    """Keep in mind what a connection reads that never says so otherwise."""
    if peer.reads.get(topic) != group and len(peer.reads) < READS_MAX:
        peer.reads[topic] = group
