"""``sync``: the messages of a samsa master, whose gregor slave this broker is.

They come with the master's ids and partitions, in the order in which the master has them; the
answer has the position here, which is the master's where both began empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.core.metaq.metaq_copies import copied_entry
from imago_broker.errors import BrokerError
from imago_broker.model import names
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.metaq import texts
from imago_broker.service.puts.put_status import APPENDED
from imago_log.errors import StoreError
from imago_wire.errors import ChecksumError, ProtocolError, WrongError, in_our_words
from imago_wire.hot import encode_put_results
from imago_wire.text.commands import CHECKSUM_NONE
from imago_wire.text.encoder import result
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.metrics import MetaqCounters
    from imago_broker.ports import Clock
    from imago_broker.processors.metaq.identity import MetaqIdentity
    from imago_broker.processors.metaq.patterns import TopicPatterns
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.puts.put_status import PutStatus
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.records.record import Placed, QueueTail
    from imago_wire.text.commands import Sync

PROBED: Final = "_metaq_slave_status_test"
"""The topic to which a master puts to see whether its slave is back; taken without being asked."""


class _Asked(NamedTuple):
    peer: Peer
    topic: str
    partition: int
    opaque: int


@dataclass(slots=True, eq=False, kw_only=True)
class SyncProcessor:
    """Serves ``sync``."""

    identity: MetaqIdentity
    messages: MessageService
    topics: TopicService
    clock: Clock
    counters: MetaqCounters
    patterns: TopicPatterns

    def sync(self, peer: Peer, command: Sync) -> None:
        """Put a message of the master, or say why not."""
        topic, partition = command.topic, command.partition
        asked = _Asked(peer, topic, partition, command.opaque)
        if partition in self.topics.handles.closed_partitions(topic):
            detail = texts.get_closed(self.identity.broker_id, partition)
            self._refuse(asked, Status.FORBIDDEN, detail)
            return
        checksum = CHECKSUM_NONE if command.checksum is None else command.checksum
        born = (self.clock.epoch_ms(), peer.born_host)
        try:
            tail = self._tail(topic, partition)
            entry = copied_entry(
                tail, command.body, command.flag, checksum, *born, command.message_id
            )
        except ChecksumError:
            self._refuse(asked, Status.INTERNAL_SERVER_ERROR, texts.CHECKSUM_FAILURE)
        except (ProtocolError, BrokerError, StoreError, ValueError) as error:
            self._refuse(asked, Status.INTERNAL_SERVER_ERROR, in_our_words(error))
        else:
            peer.puts += 1
            self.messages.put_copies([entry], None, self._done, asked)

    def _tail(self, topic: str, partition: int) -> QueueTail:
        config = self.topics.get(topic)
        if config is None:
            made = self._made(topic)
            if made is None:
                raise WrongError(texts.topic_not_accepted(topic))
            config = self.topics.create_or_update(made)
        if not config.dual:
            raise WrongError(texts.topic_not_accepted(topic))
        if not 0 <= partition < config.write_queues:
            raise WrongError(texts.wrong_partition(partition))
        return self.messages.store.tail(topic, partition)

    def _made(self, topic: str) -> TopicConfig | None:
        if topic == PROBED:
            return TopicConfig(name=topic, read_queues=1, write_queues=1)
        if names.looks_own(topic) or names.is_derived(topic) or names.topic_problem(topic):
            return None
        return self.patterns.made(topic)

    def _done(self, token: object, status: PutStatus, placed: Sequence[Placed]) -> None:
        assert isinstance(token, _Asked)
        token.peer.puts -= 1
        if status not in APPENDED:
            self._refuse(token, Status.INTERNAL_SERVER_ERROR, f"Not stored: {status.value}")
            token.peer.flush()
            return
        asked = (token.opaque, token.partition, token.topic)
        token.peer.stored(encode_put_results([asked], placed, 0, 1))
        self.counters.cmd_put += 1
        self.counters.puts_stored += 1

    def _refuse(self, asked: _Asked, code: int, detail: str) -> None:
        text = texts.put_failed(self.identity.url, asked.topic, asked.partition, detail)
        asked.peer.reply(result(code, text, asked.opaque))
        self.counters.cmd_put += 1
        if code != Status.FORBIDDEN:
            self.counters.put_failed += 1
