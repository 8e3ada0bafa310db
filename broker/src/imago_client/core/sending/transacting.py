"""The operations of a producer of transactions: begin, end, and say that it lives."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

from imago_client.core.effects import Oneway, Operation, Request, ask_ok
from imago_client.core.failover import through_failover
from imago_client.core.lookup import find_publish_route
from imago_client.core.sending.outgoing import marked, prepare
from imago_client.errors import ClientError, UsageError
from imago_client.message_queue import MessageQueue
from imago_client.received import received
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import SYS_PREPARED
from imago_wire.records.stored import decode_record
from imago_wire.remoting.bodies.client import HeartbeatData, ProducerData
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from imago_wire.remoting.texts.message_ids import parse_offset_message_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_client.config import ProducerConfig
    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.core.state import ClientState
    from imago_client.messages import Message, SendResult
    from imago_client.received import ReceivedMessage
    from imago_wire.remoting.command import RemotingCommand

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 30.0
"""As the original clients: brokers forget who is silent for two minutes."""
CHECKS_MAX: Final = 1000
"""Questions that the checker has not answered; the broker asks again about further ones."""


class Decision(Enum):
    """What becomes of a transaction. The values are RocketMQ's."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0
    """Not known yet: the broker asks again later."""


def prepare_half(state: ClientState, config: ProducerConfig, message: Message) -> Outgoing:
    """Make a message ready that nobody reads before its transaction is committed."""
    if config.idempotent:
        raise UsageError("a producer of transactions cannot be idempotent: brokers end each once")
    outgoing = prepare(state, config, message)
    marks = {names.TRAN_MSG: "true", names.PRODUCER_GROUP: config.group}
    half = marked(config, outgoing, marks)
    return half._replace(sys_flag=half.sys_flag | SYS_PREPARED)


def end(
    state: ClientState, config: ProducerConfig, sent: SendResult, decision: Decision
) -> Operation[None]:
    """Tell the shard that has the half message; made again while a master is being sought."""
    _, log_offset = parse_offset_message_id(sent.stored_id)
    header = EndTransactionRequestHeader(
        topic=sent.queue.topic,
        producer_group=config.group,
        tran_state_table_offset=sent.offset,
        commit_log_offset=log_offset,
        commit_or_rollback=decision.value,
        from_transaction_check=False,
        msg_id=sent.message_id,
        transaction_id=sent.message_id,
    )

    def attempt() -> Operation[None]:
        route = yield from find_publish_route(state, sent.queue.topic, config.queues_by_default)
        yield from ask_ok(
            Request(
                route.master(sent.queue.shard),
                RequestCode.END_TRANSACTION,
                header,
                timeout_s=config.send_timeout_s,
            )
        )

    yield from through_failover(state, sent.queue.topic, attempt)


def group_of_check(command: RemotingCommand) -> str:
    """Return the group of producers that a check is for, as the message itself says."""
    try:
        return decode_record(command.body).properties.get(names.PRODUCER_GROUP, "")
    except ProtocolError:
        return ""


def read_check(
    command: RemotingCommand,
) -> tuple[CheckTransactionStateRequestHeader, ReceivedMessage]:
    """Return what a broker asks, and the message that it asks about. ProtocolError: unreadable."""
    asked = CheckTransactionStateRequestHeader.from_ext(command.ext)
    stored = decode_record(command.body, inflate=True)
    return asked, received(MessageQueue(stored.topic, asked.bname or "", stored.queue_id), stored)


def judge(config: ProducerConfig, decision: object) -> Decision:
    """Return what a checker decided; what is no Decision is logged and counts as UNKNOWN."""
    if isinstance(decision, Decision):
        return decision
    log.error(
        "transaction_checker_failed group=%s: it returned %r, which is no Decision",
        config.group,
        decision,
    )
    return Decision.UNKNOWN


def answer_check(
    config: ProducerConfig,
    address: str,
    asked: CheckTransactionStateRequestHeader,
    decision: Decision,
) -> Operation[None]:
    """Answer a broker that has asked."""
    header = EndTransactionRequestHeader(
        topic=asked.topic,
        producer_group=config.group,
        tran_state_table_offset=asked.tran_state_table_offset,
        commit_log_offset=asked.commit_log_offset,
        commit_or_rollback=decision.value,
        from_transaction_check=True,
        msg_id=asked.msg_id or "",
        transaction_id=asked.transaction_id,
    )
    yield Oneway(address, RequestCode.END_TRANSACTION, header)


def heartbeat(
    state: ClientState, config: ProducerConfig, topics: Iterable[str]
) -> Operation[list[ClientError]]:
    """Tell the masters of the topics that this producer can be asked; return what went wrong."""
    body = HeartbeatData(
        client_id=state.client_id, producer_data_set=(ProducerData(group_name=config.group),)
    ).encode(standard=True)
    errors: list[ClientError] = []
    told: set[str] = set()
    for topic in topics:
        try:
            route = yield from find_publish_route(state, topic, config.queues_by_default)
        except ClientError as error:
            errors.append(error)
            continue
        for shard in sorted(route.addresses):
            try:
                address = route.master(shard)
                if address in told:
                    continue
                told.add(address)
                yield from ask_ok(
                    Request(
                        address,
                        RequestCode.HEART_BEAT,
                        body=body,
                        timeout_s=state.config.request_timeout_s,
                    )
                )
            except ClientError as error:  # the other shards' masters are told all the same
                errors.append(error)
    return errors
