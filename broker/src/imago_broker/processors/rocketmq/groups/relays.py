"""Questions that only a consumer can answer: passed on over its connection, its answer back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_broker.service.puts.copies import is_withheld
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.stats import GetConsumerStatusBody
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from imago_wire.remoting.peer import Version
from imago_wire.remoting.signing import unsigned
from imago_wire.remoting.texts.message_ids import parse_offset_message_id

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.groups.clients import ClientRegistry, ConnectedClient
    from imago_log.store import MessageStore
    from imago_wire.remoting.bodies.client import MessageQueue
    from imago_wire.remoting.command import RemotingCommand

TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000


@dataclass(slots=True, eq=False, kw_only=True)
class RelayProcessor:
    """GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY, …_GET_CONSUMER_STATUS."""

    store: MessageStore
    clients: ClientRegistry
    identity: RocketmqIdentity

    def running_info(self, exchange: Exchange) -> Reply | None:
        """GET_CONSUMER_RUNNING_INFO: what is going on inside one consumer."""
        header = GetConsumerRunningInfoRequestHeader.from_ext(exchange.ext)
        client = self._client(header.consumer_group, header.client_id)
        self._pass_on(exchange, client, header.consumer_group, unsigned(exchange.ext), b"")
        return None

    def consume_directly(self, exchange: Exchange) -> Reply | None:
        """CONSUME_MESSAGE_DIRECTLY: have one consumer take one message now."""
        header = ConsumeMessageDirectlyResultRequestHeader.from_ext(exchange.ext)
        client = self._client(header.consumer_group, header.client_id or "")
        record = self._record(header.msg_id or "")
        ext = {**unsigned(exchange.ext), "brokerName": self.identity.broker_name}
        self._pass_on(exchange, client, header.consumer_group, ext, record)
        return None

    def consumer_status(self, exchange: Exchange) -> Reply | None:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the places that consumers have in memory."""
        header = GetConsumerStatusRequestHeader.from_ext(exchange.ext)
        group = self.clients.consumers(header.group)
        clients = list(group.members.values()) if group else []
        if header.client_addr:
            clients = [one for one in clients if one.client_id == header.client_addr]
        if not clients:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        _StatusRound(exchange, len(clients)).ask(
            clients, {"topic": header.topic, "group": header.group}
        )
        return None

    def _client(self, group_name: str, client_id: str) -> ConnectedClient:
        group = self.clients.consumers(group_name)
        client = group.member(client_id) if group else None
        if client is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online"
            )
        if client.version < Version.V3_1_8_SNAPSHOT:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, please "
                "upgrade it to V3_1_8_SNAPSHOT",
            )
        return client

    def _record(self, message_id: str) -> bytes:
        try:
            _, offset = parse_offset_message_id(message_id)
        except ProtocolError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        record = self.store.record_at(offset) if offset >= 0 else None
        if record is None or is_withheld(record):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return record

    def _pass_on(
        self,
        exchange: Exchange,
        client: ConnectedClient,
        group: str,
        ext: dict[str, str],
        body: bytes,
    ) -> None:
        def answered(response: RemotingCommand | None) -> None:
            if response is None:
                remark = f"consumer <{group}> <{client.client_id}> Timeout: {TIMEOUT_MS} ms"
                exchange.answer(Reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark))
            else:
                exchange.answer(
                    Reply(response.code, response.remark, response.ext or None, response.body)
                )

        client.channel.call(exchange.command.code, ext, body, TIMEOUT_MS, answered)


class _StatusRound:
    """One question to several consumers; those that do not answer in time are left out."""

    def __init__(self, exchange: Exchange, waiting: int) -> None:
        self._exchange = exchange
        self._waiting = waiting
        self._table: dict[str, dict[MessageQueue, int]] = {}

    def ask(self, clients: list[ConnectedClient], ext: dict[str, str]) -> None:
        """Send the question to every client."""
        for client in clients:
            client.channel.call(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                ext,
                b"",
                STATUS_TIMEOUT_MS,
                lambda response, name=client.client_id: self._answered(name, response),  # type: ignore[misc]  # a default argument binds the name
            )

    def _answered(self, client_id: str, response: RemotingCommand | None) -> None:
        self._waiting -= 1
        if response is not None and response.code == ResponseCode.SUCCESS:
            try:
                status = GetConsumerStatusBody.decode(response.body)
            except ProtocolError:
                status = GetConsumerStatusBody()
            self._table[client_id] = dict(status.message_queue_table or {})
        if self._waiting == 0:
            body = GetConsumerStatusBody(consumer_table=self._table)
            self._exchange.answer(Reply(body=body.encode()))
