"""What transactional sinks ask for: batches are staged, and a micro-batch is published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from imago_broker.core.transactions.metaq_transaction import MetaqTransactionError
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.needs import needs_to_send
from imago_broker.processors.rocketmq.outcomes import REFUSED, STORED, illegal_message
from imago_broker.processors.rocketmq.send.send import checked_due_ms
from imago_broker.processors.rocketmq.send.sending import Sending, checked_topic, delay_level
from imago_broker.processors.rocketmq.send.sequenced import take_numbers
from imago_broker.service.metaq_transactions.staged_batches import BatchDecidedError, StagedKey
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.record_format import properties as props
from imago_wire.record_format.layout import SYS_COMPRESSED
from imago_wire.record_format.sequences import user_tag
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.imago import PublishStagedRequestHeader, StageBatchRequestHeader
from imago_wire.remoting.messages import BatchEntry, decode_batch
from imago_wire.remoting.staged import SAID_BYTES_MAX, SINK_SIZE_MAX, STAGED_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.send.sending import OnTopicMade
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.metaq_transactions.staged_batches import StagedBatches
    from imago_broker.service.topics.topics import TopicService

_BEGINS: Final = Reply(
    ResponseCode.SYSTEM_BUSY, "this broker has just become the master: try again"
)


class StagingProcessor:
    """IMAGO_STAGE_BATCH and IMAGO_PUBLISH_STAGED."""

    def __init__(
        self,
        staged: StagedBatches,
        transactions: MetaqTransactions,
        *,
        topics: TopicService,
        on_topic_made: OnTopicMade,
        clock: Clock,
        settings: LiveSettings[RocketmqSection],
    ) -> None:
        self._staged, self._transactions = staged, transactions
        self._topics, self._on_topic_made = topics, on_topic_made
        self._clock, self._settings = clock, settings

    def stage(self, exchange: Exchange) -> Reply | None:
        """Write down a batch that nobody reads yet; the answer follows once it is safe.

        One of a micro-batch that was published is not taken, and the answer says so.
        """
        header = StageBatchRequestHeader.from_ext(exchange.ext)
        sending = Sending.of(exchange)
        if not self._transactions.ready:
            return _BEGINS
        sink = _sink(exchange, header.imago_sink)
        named = STAGED_NAME.fullmatch(header.imago_attempt)
        if header.imago_batch < 0 or header.imago_part < 0 or named is None:
            raise _wrong("a staged batch needs numbers of 0 or more, and the name of an attempt")
        bytes_max = self._settings.current.message_bytes_max
        if sending.queue_id < 0 or sending.topic.startswith("%"):
            raise _wrong("what is staged needs a queue of a topic that is no group's own")
        if len(sending.body) > bytes_max or sending.sys_flag & SYS_COMPRESSED:
            return illegal_message(bytes_max)
        entries = self._checked(decode_batch(sending.body))
        if not entries:
            return illegal_message(bytes_max)
        checked_topic(self._topics, self._on_topic_made, sending, exchange.channel.peer)
        key = StagedKey(
            sink, header.imago_batch, header.imago_attempt, header.imago_part, sending.topic
        )
        try:
            self._staged.stage(
                key,
                sending.queue_id,
                entries,
                user=_user(exchange),
                born_ms=sending.born_ms,
                born_host=exchange.channel.born_host,
                told=_answering(exchange),
            )
        except BatchDecidedError as error:
            return _decided(error, header.imago_batch)
        except MetaqTransactionError as error:
            return _refused(error)
        return None

    def publish(self, exchange: Exchange) -> Reply | None:
        """Have readers see a micro-batch, or forget it; who asks again hears what was decided."""
        header = PublishStagedRequestHeader.from_ext(exchange.ext)
        if not self._transactions.ready:
            return _BEGINS
        sink, batch = _sink(exchange, header.imago_sink), header.imago_batch
        topics = self._staged.topics_of(sink, batch)
        exchange.require(lambda: [need for name in sorted(topics) for need in needs_to_send(name)])
        told = _answering(exchange)
        try:
            if not header.imago_commit:
                self._staged.roll_back(sink, batch, told)
                return None
            parts, said = _asked(exchange.command.body)
            self._staged.publish(sink, batch, parts, said, told, user=_user(exchange))
        except BatchDecidedError as error:
            reply = _decided(error, batch)
            self._staged.confirm(_answering(exchange, reply))
        except MetaqTransactionError as error:
            return _refused(error)
        return None

    def _checked(self, entries: Sequence[BatchEntry]) -> list[BatchEntry]:
        """Return the messages as they are stored. RequestError: one cannot be."""
        sent = [one._replace(properties=props.as_sent(one.properties)) for one in entries]
        bare, claimed = take_numbers(sent, "")
        if claimed is not None:
            raise _wrong("an idempotent producer's messages cannot be staged")
        now_ms, delay_ms_max = self._clock.epoch_ms(), self._settings.current.timer_delay_ms_max
        for one in bare:
            if not delay_level(one.properties):
                checked_due_ms(one.properties, now_ms, delay_ms_max)
            if not props.find(one.properties, b"UNIQ_KEY"):
                raise _wrong("a message that is staged needs its UNIQ_KEY")
            if props.find(one.properties, b"TRAN_MSG"):
                raise _wrong("a message that is staged begins no transaction of its own")
        return list(bare)


def _sink(exchange: Exchange, sink: str) -> str:
    """Return the id of a sink, which belongs to its user, as those of idempotent producers do."""
    if not 0 < len(sink) <= SINK_SIZE_MAX:
        raise _wrong(f"the id of a sink has 1 to {SINK_SIZE_MAX} characters")
    return f"{sink}/{user_tag(exchange.sender)}" if exchange.sender else sink


def _user(exchange: Exchange) -> str:
    if exchange.user:
        return f"user {exchange.user}"
    return f"address {exchange.channel.peer.rpartition(':')[0]}"


def _asked(body: bytes) -> tuple[dict[str, int], str]:
    """Return which attempts count, with their parts, and what is to be told later."""
    parts, said = {}, None
    try:
        asked = json.loads(body)
        parts, said = asked["parts"], asked["said"]
        fits = all(type(number) is int and number > 0 for number in parts.values())
    except (AttributeError, KeyError, TypeError, ValueError):
        fits = False
    fits = fits and isinstance(said, str) and said.isascii()
    if not fits or len(body) > SAID_BYTES_MAX:
        raise _wrong('the body must look like {"parts": {"a": 1}, "said": "…"}')
    return parts, str(said)


def _answering(
    exchange: Exchange, reply: Reply = OK
) -> Callable[[PutStatus | MetaqTransactionError], None]:
    def told(how: PutStatus | MetaqTransactionError) -> None:
        if isinstance(how, MetaqTransactionError):
            exchange.answer(_refused(how))
        elif how is PutStatus.OK:
            exchange.answer(reply)
        elif how in STORED:
            exchange.answer(Reply(STORED[how]))
        else:
            exchange.answer(REFUSED[how])

    return told


def _decided(error: BatchDecidedError, batch: int) -> Reply:
    decided = error.decided
    if decided.batch > batch:
        return Reply(
            ResponseCode.IMAGO_PRODUCER_FENCED,
            f"micro-batch {batch}: {decided.batch} of this sink was published before",
        )
    return Reply(ext={"imagoDecided": str(decided.batch)}, body=decided.said.encode())


def _refused(error: MetaqTransactionError) -> Reply:
    return Reply(ResponseCode.SYSTEM_ERROR, f"{error.problem.value}: {error.detail or error}")


def _wrong(text: str) -> RequestError:
    return rules.invalid(text)
