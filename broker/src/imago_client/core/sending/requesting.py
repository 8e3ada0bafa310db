"""Requests and replies: a message that says who waits for its reply, and the consumer's reply.

The reply goes to whichever broker the replier chooses, and from there over the connection of the
requester: so a requester tells every master of the cluster that it lives.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_client.checks import check_seconds, refuse
from imago_client.core.effects import Operation, Request, ask_ok
from imago_client.core.lookup import cluster_info
from imago_client.core.routing import MASTER_ID
from imago_client.core.sending.outgoing import marked, prepare
from imago_client.errors import ClientError, TryAgainError, UsageError
from imago_client.messages import Message
from imago_client.received import INFLATED_BYTES_MAX, ReceivedMessage
from imago_wire.compression import inflate
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import SYS_COMPRESSED
from imago_wire.remoting.bodies.client import HeartbeatData, ProducerData
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.send import ReplyMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_client.config import ProducerConfig
    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.core.state import ClientState
    from imago_wire.remoting.command import RemotingCommand

log = logging.getLogger(__name__)

REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"


@dataclass(frozen=True, slots=True)
class ReceivedReply:
    """What a consumer replied to a request."""

    body: bytes = field(repr=False)
    properties: Mapping[str, str]
    """As sent, with those that clients and brokers add."""
    flag: int
    born_ms: int
    """When it was made, ms since 1970."""


class AwaitedReplies:
    """The requests of one client that wait for a reply."""

    def __init__(self) -> None:
        self._awaited: dict[str, Callable[[ReceivedReply], None]] = {}

    def expect(self, correlation_id: str, take: Callable[[ReceivedReply], None]) -> None:
        """Call `take` with the reply when it comes, once."""
        self._awaited[correlation_id] = take

    def forget(self, correlation_id: str) -> None:
        """Pass over the reply when it comes: nobody waits any longer."""
        self._awaited.pop(correlation_id, None)

    def arrived(self, command: RemotingCommand) -> RemotingCommand:
        """Give a reply to who waits for it; return the answer to the broker that pushed it."""
        try:
            reply = read_reply(command)
        except ProtocolError as error:
            log.warning("reply_unreadable error=%s", error)
            return command.answer(ResponseCode.SYSTEM_ERROR, str(error))
        correlation_id = reply.properties.get(names.CORRELATION_ID, "")
        take = self._awaited.pop(correlation_id, None)
        if take is None:  # as the original clients: the replier has done its part
            log.warning("reply_too_late correlation_id=%s", correlation_id)
        else:
            take(reply)
        return command.answer(ResponseCode.SUCCESS)


def prepare_request(
    state: ClientState, config: ProducerConfig, message: Message, timeout_s: float
) -> tuple[Outgoing, str]:
    """Make a request ready; return it and the id that its reply will name."""
    if config.idempotent:
        raise UsageError("a requester cannot be idempotent: a request without a reply is repeated")
    check_seconds("timeout_s", timeout_s, 0.001)
    correlation_id = state.unique_keys.next_key(state.clock_ms())
    asks = {
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: state.client_id,
        names.TTL: str(round(timeout_s * 1000)),
    }
    return marked(config, prepare(state, config, message), asks), correlation_id


def prepare_reply(
    state: ClientState,
    config: ProducerConfig,
    request: ReceivedMessage,
    body: bytes,
    properties: Mapping[str, str] | None,
) -> Outgoing:
    """Make the reply to a request ready. UsageError: the message is none."""
    if config.idempotent:
        raise UsageError("reply: an idempotent producer sends none; use a plain one")
    if not isinstance(request, ReceivedMessage):
        raise refuse("request", request, "a message that a consumer received")
    found = request.properties
    asked: dict[str, str] = {
        name: found[name]
        for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)
        if name in found
    }
    if names.CORRELATION_ID not in asked or names.REPLY_TO_CLIENT not in asked:
        raise UsageError(f"request: message {request.message_id} asks for no reply")
    if names.CLUSTER not in found:
        raise UsageError(
            f"request: message {request.message_id} does not name its cluster; reply to messages"
            " as a consumer received them"
        )
    message = Message(
        found[names.CLUSTER] + REPLY_TOPIC_SUFFIX,
        body,
        properties=properties or {},
    )
    marks = {**asked, names.MESSAGE_TYPE: "reply"}
    outgoing = marked(config, prepare(state, config, message), marks)
    return outgoing._replace(code=RequestCode.SEND_REPLY_MESSAGE_V2, may_join=False)


def read_reply(command: RemotingCommand) -> ReceivedReply:
    """Return a reply that a broker pushes. ProtocolError: it is unreadable."""
    header = ReplyMessageRequestHeader.from_ext(command.ext)
    body = command.body
    if header.sys_flag & SYS_COMPRESSED:
        body = inflate(body, header.sys_flag, INFLATED_BYTES_MAX)
    properties = names.decode((header.properties or "").encode())
    return ReceivedReply(body, properties, header.flag, header.born_timestamp)


def heartbeat(state: ClientState, config: ProducerConfig) -> Operation[list[ClientError]]:
    """Tell every master that this requester can be reached; return what went wrong with some.

    TryAgainError: none could be told.
    """
    body = HeartbeatData(
        client_id=state.client_id, producer_data_set=(ProducerData(group_name=config.group),)
    ).encode(standard=True)
    info = yield from cluster_info(state)
    addresses = sorted(
        shard.broker_addrs[MASTER_ID]
        for shard in info.broker_addr_table.values()
        if MASTER_ID in shard.broker_addrs
    )
    errors: list[ClientError] = []
    for address in addresses:
        request = Request(
            address, RequestCode.HEART_BEAT, body=body, timeout_s=state.config.request_timeout_s
        )
        try:
            yield from ask_ok(request)
        except ClientError as error:
            errors.append(error)
    if len(errors) == len(addresses):
        why = errors[-1] if errors else "the name service knows no master of any shard"
        raise TryAgainError(f"nobody could send a reply to this client: {why}")
    return errors
