"""``put``: from scanned commands to entries of the log, and from their places to answers."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.transactions.metaq_transaction import (
    MetaqTransactionError,
    TransactionProblem,
)
from imago_broker.errors import BrokerError
from imago_broker.model import names
from imago_broker.model.topics.sealing import seal_of
from imago_broker.processors.metaq import realtime, texts
from imago_broker.processors.metaq.asks import ASKS
from imago_broker.processors.rounds import Round
from imago_broker.service.puts.put_status import PutStatus
from imago_log.errors import StoreError
from imago_wire.errors import ChecksumError, ProtocolError
from imago_wire.hot import encode_put_results, metaq_entry, take_puts
from imago_wire.records.record import ENTRY_BODY
from imago_wire.text.commands import Put
from imago_wire.text.encoder import result
from imago_wire.text.items import PUT
from imago_wire.text.status import Status

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from imago_broker.processors.metaq.identity import MetaqFace
    from imago_broker.processors.metaq.patterns import TopicPatterns
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.processors.metaq.transactions import MetaqTransactionProcessor
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topic_handles import TopicHandle
    from imago_wire.records.record import Placed
    from imago_wire.text.items import AskedPut, Item, PutItem

    PutRound = Round[Peer, AskedPut]
    WhenPublished = Callable[[str, Callable[[], None]], bool]
    """(topic, then): call `then` once clients can find a topic that was made just now, or that
    takes too long; False, and nothing will be called: they can, or nobody tells them."""

logger = logging.getLogger(__name__)

PUT_LETTER: Final = ord("p")
"""No other command begins with it."""
ANY_PARTITION = -1
NOT_TAKEN = "the master of the shard takes no messages at the moment"


class RefusedError(Exception):
    """The put is answered with this code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class UnpublishedError(Exception):
    """The topic was made just now: the put waits until clients can find it."""


class PutProcessor:
    """Serves ``put``."""

    def __init__(
        self,
        *,
        face: MetaqFace,
        messages: MessageService,
        rng: random.Random,
        patterns: TopicPatterns,
        when_published: WhenPublished,
        transactions: MetaqTransactionProcessor,
    ) -> None:
        topics, settings = patterns.topics, face.settings
        self._identity, self._settings = face.identity, settings
        self._serving_rules, self._clock = face.serving_rules, face.clock
        self._counters, self._realtime = face.counters, face.realtime
        self._messages, self._topics, self._rng = messages, topics, rng
        self._patterns = patterns
        self._when_published = when_published
        self._transactions = transactions
        self._handles = topics.handles
        self._tails = topics.handles.metaq_tails
        self._size_max = settings.current.message_bytes_max
        self._limits = (settings.current.line_bytes_max, self._size_max)
        self._round: PutRound = Round(Acknowledgement.LEADER)
        self._waiting: dict[str, list[Peer]] = {}
        """Who waits to put into a topic that clients cannot find yet."""

    def take(self, peer: Peer, data: bytes | bytearray) -> int:
        """Take the puts at the start of a read, as far as they need no closer look.

        Returns how many bytes they fill. Nearly all puts come this way, in one call a read.
        """
        if not data or data[0] != PUT_LETTER:
            return 0
        round_ = self._round
        if round_.entries is not self._messages.newest:
            round_ = self._open_round(round_.level)
        entries, asked, level = round_.entries, round_.asked, round_.level
        first = len(entries)
        born, grants = (round_.born_ms, peer.born_host), peer.grants
        granted = None if grants is None else grants.publish
        try:
            used = take_puts(data, self._limits, self._tails[level], born, entries, asked, granted)
        except Exception:
            # A fault of ours must not keep others' puts from being appended: these are looked at
            # one by one.
            logger.warning("puts_not_taken", exc_info=True)
            del entries[first:], asked[first:]
            return 0
        if len(entries) > first:
            if not first:
                self._messages.put(entries, level, self._done, round_)
            round_.runs.append((peer, first, len(entries)))
            peer.puts += 1
        return used

    def accept(self, peer: Peer, items: Sequence[Item], at: int) -> int:
        """Take the puts from `at` on; return the index of the first item that is none."""
        while at < len(items):
            item = items[at]
            if item.kind != PUT:
                break
            if item.topic in self._waiting:
                self._hold_back(peer, item.topic)
                break
            if not self._take_one(peer, item):
                break
            at += 1
        return at

    def _take_one(self, peer: Peer, item: PutItem) -> bool:
        """Take or refuse a put: all checks, in the original's order. False: it has to wait."""
        topic, body = item.topic, item.body
        if item.transaction is not None:
            return self._take_into_transaction(peer, item)
        partition = self._chosen(item)
        try:
            handle = self._look_closer(item, partition)
            tail = handle.tails[partition] or self._handles.tail(handle, partition)
            born_ms = self._clock.epoch_ms()
            entry = metaq_entry(tail, body, item.flag, item.checksum, born_ms, peer.born_host)
        except UnpublishedError:
            self._hold_back(peer, topic)
            return False
        except (RefusedError, ProtocolError, BrokerError, StoreError) as error:
            self._refuse(peer, item, partition, error)
            return True
        except Exception as error:
            # A fault of ours must cost one put, not the connection of all producers of a process.
            logger.exception("put_failed topic=%s partition=%d", topic, partition)
            self._refuse(peer, item, partition, error)
            return True
        # Only now: making a topic appends what was gathered, which ends the turn's round.
        round_ = self._open_round(handle.level)
        first = len(round_.entries)
        round_.entries.append(entry)
        round_.asked.append((item.opaque, partition, topic))
        if not first:
            self._messages.put(round_.entries, round_.level, self._done, round_)
        round_.runs.append((peer, first, first + 1))
        peer.puts += 1
        return True

    def _take_into_transaction(self, peer: Peer, item: PutItem) -> bool:
        def accepted(topic: str) -> TopicHandle:
            try:
                return self._accepted(topic, item.partition)
            except (RefusedError, BrokerError, StoreError) as error:
                text = texts.topic_not_accepted(topic)
                raise MetaqTransactionError(TransactionProblem.LOST, text) from error

        try:
            peer.reply(self._transactions.put(peer, item, accepted))
        except UnpublishedError:
            self._hold_back(peer, item.topic)
            return False
        return True

    def _hold_back(self, peer: Peer, topic: str) -> None:
        self._waiting[topic].append(peer)
        peer.hold_back()

    def _published(self, topic: str) -> None:
        """Go on with those who waited: clients can find the topic, or have waited long enough."""
        self._handles.unpublished.discard(topic)
        self._handles.forget(topic)
        for peer in self._waiting.pop(topic, ()):
            peer.go_on()

    def _open_round(self, level: Acknowledgement) -> PutRound:
        """Return the round of this level that may grow, a new one where there is none."""
        round_ = self._round
        if round_.entries is not self._messages.newest or round_.level is not level:
            round_ = self._round = Round(level, self._clock.epoch_ms())
        return round_

    def _done(self, round_: PutRound, status: PutStatus, placed: Sequence[Placed]) -> None:
        if status is not PutStatus.OK:
            if status is PutStatus.TOO_LARGE and len(round_.entries) > 1:
                self._put_each(round_)
            else:
                self._failed(round_, status)
            return
        asked = round_.asked
        for peer, first, end in round_.runs:
            peer.puts -= 1
            peer.stored(encode_put_results(asked, placed, first, end))
        self._counters.cmd_put += len(placed)
        self._counters.puts_stored += len(placed)
        if self._patterns.may_count():
            self._count_stored(round_)

    def _put_each(self, round_: PutRound) -> None:
        """Put the messages of a refused round one by one: only the one too large shall fail."""
        for peer, first, end in round_.runs:
            peer.puts += end - first - 1
        for alone in round_.one_by_one():
            self._messages.put(alone.entries, alone.level, self._done, alone)

    def _failed(self, round_: PutRound, status: PutStatus) -> None:
        for peer, first, end in round_.runs:
            peer.puts -= 1
            for opaque, partition, topic in round_.asked[first:end]:
                code, text = self._failure(status, topic, partition)
                peer.reply(result(code, text, opaque))
                self._count_failed(topic)
            self._counters.cmd_put += end - first
            peer.flush()

    def _chosen(self, item: PutItem) -> int:
        """Return the partition that the put goes to: its own, or any, an open one if there is."""
        topic, partition = item.topic, item.partition
        if partition != ANY_PARTITION:
            return partition
        handle = self._handles.of(topic)
        if handle is not None:
            count = handle.partitions
        else:
            made = self._patterns.made(topic) if names.topic_problem(topic) is None else None
            count = 1 if made is None else made.write_queues
        closed = self._handles.closed_partitions(topic)
        choices: Sequence[int] = range(count)
        if closed:
            choices = [p for p in choices if p not in closed]
        # The original does not look for open ones; here only a topic without any is refused.
        return self._rng.choice(choices or range(max(1, count)))

    def _look_closer(self, item: PutItem, partition: int) -> TopicHandle:
        """Check a put in the original's order; return its topic, or raise RefusedError."""
        topic, body = item.topic, item.body
        if partition in self._handles.closed_partitions(topic):
            detail = texts.put_closed(self._identity.broker_id, partition)
            raise RefusedError(Status.FORBIDDEN, self._text(topic, partition, detail))
        refusal = self._serving_rules.refusal(ASKS[Put])
        if refusal is not None:
            raise self._refusal(topic, partition, refusal)
        handle = self._accepted(topic, partition)
        if not handle.partitions and seal_of(handle.config) is not None:
            detail = texts.put_closed(self._identity.broker_id, partition)
            raise RefusedError(Status.FORBIDDEN, self._text(topic, partition, detail))
        if not 0 <= partition < handle.partitions:
            raise self._refusal(topic, partition, texts.wrong_partition(partition))
        size_max = self._size_max
        if len(body) > size_max:
            detail = f"The message has {len(body)} bytes, more than the limit of {size_max}"
            raise self._refusal(topic, partition, detail)
        return handle

    def _accepted(self, topic: str, partition: int) -> TopicHandle:
        handle = self._handles.of(topic)
        if handle is None:
            self._create(topic, partition)
        elif not handle.config.dual:
            raise self._refusal(topic, partition, texts.topic_not_accepted(topic))
        handle = self._handles.of(topic)
        assert handle is not None, "the topic was found or made just now"
        return handle

    def _create(self, topic: str, partition: int) -> None:
        own = names.looks_own(topic) or names.is_derived(topic) or names.topic_problem(topic)
        made = None if own or self._topics.intake.cordoned else self._patterns.made(topic)
        if made is None:
            raise self._refusal(topic, partition, texts.topic_not_accepted(topic))
        self._topics.create_or_update(made)
        # Clients that publish to it as soon as they are answered look for it in the registry.
        if self._when_published(topic, partial(self._published, topic)):
            self._handles.unpublished.add(topic)
            self._waiting[topic] = []
            raise UnpublishedError

    def _refusal(self, topic: str, partition: int, detail: str) -> RefusedError:
        text = self._text(topic, partition, detail)
        return RefusedError(Status.INTERNAL_SERVER_ERROR, text)

    def _text(self, topic: str, partition: int, detail: str = "") -> str:
        return texts.put_failed(self._identity.url, topic, partition, detail)

    def _refuse(self, peer: Peer, item: PutItem, partition: int, error: Exception) -> None:
        topic, opaque = item.topic, item.opaque
        if isinstance(error, RefusedError):
            code, text = error.code, error.text
        else:
            checksum = isinstance(error, ChecksumError)
            detail = texts.CHECKSUM_FAILURE if checksum else str(error)
            code, text = Status.INTERNAL_SERVER_ERROR, self._text(topic, partition, detail)
        peer.reply(result(code, text, opaque))
        self._counters.cmd_put += 1
        if code != Status.FORBIDDEN:
            self._count_failed(topic)

    def _failure(self, status: PutStatus, topic: str, partition: int) -> tuple[int, str]:
        if status in (PutStatus.BUSY, PutStatus.STOPPING):
            return Status.SERVICE_UNAVAILABLE, texts.BUSY
        if status in (PutStatus.SLAVE_TIMEOUT, PutStatus.SLAVE_UNAVAILABLE):
            text = texts.slave_put_failed(self._identity.url, topic, partition)
            if self._messages.pair is not None:
                text = texts.samsa_slave_failed(self._messages.pair.url, topic, partition)
            return Status.INTERNAL_SERVER_ERROR, text
        if status is PutStatus.PAIR_AWAY:
            return Status.INTERNAL_SERVER_ERROR, texts.SLAVE_AWAY
        details = {
            PutStatus.TOO_FEW_IN_SYNC: "Too few members of the shard are in sync",
            PutStatus.DISK_FULL: "The disk is full",
            PutStatus.NOT_WRITABLE: self._not_writable(),
            PutStatus.TOO_LARGE: "The message does not fit into a file of the log",
        }
        text = self._text(topic, partition, details.get(status, ""))
        return Status.INTERNAL_SERVER_ERROR, text

    def _not_writable(self) -> str:
        if master := self._messages.copied_from:
            return f"this broker copies {master}, put there"
        return self._serving_rules.refusal(ASKS[Put]) or NOT_TAKEN

    def _count_stored(self, round_: PutRound) -> None:
        for entry, (_, _, topic) in zip(round_.entries, round_.asked, strict=True):
            if self._patterns.counts(topic):
                self._realtime.add(realtime.PUT, topic)
                self._realtime.add(realtime.MESSAGE_SIZE, topic, 1, len(entry[ENTRY_BODY]))

    def _count_failed(self, topic: str) -> None:
        self._counters.put_failed += 1
        if self._patterns.counts(topic):
            self._realtime.add(realtime.PUT_FAILED, topic)
