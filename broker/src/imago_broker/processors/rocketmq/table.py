"""All request codes that a broker serves to RocketMQ clients, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.members import MemberProcessor
from imago_broker.processors.rocketmq.offsets import OffsetProcessor
from imago_broker.processors.rocketmq.pull import PullProcessor
from imago_broker.processors.rocketmq.queries import QueryProcessor
from imago_broker.processors.rocketmq.rows import Lane, Row, Table, build_table
from imago_broker.processors.rocketmq.send import SendProcessor
from imago_broker.processors.rocketmq.send_back import SendBackProcessor
from imago_broker.processors.rocketmq.send_path import SendPath
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.processors.rocketmq.rows import Hook
    from imago_broker.processors.rocketmq.services import RocketmqServices


@dataclass(frozen=True, slots=True)
class Lanes:
    """The classes of requests, with RocketMQ's own queue lengths as limits."""

    send: Lane
    pull: Lane
    query: Lane
    client: Lane
    heartbeat: Lane
    admin: Lane

    @classmethod
    def made(cls) -> Lanes:
        """Make fresh, empty lanes."""
        return cls(
            send=Lane("send", 10_000),
            pull=Lane("pull", 100_000),
            query=Lane("query", 20_000),
            client=Lane("client", 100_000),
            heartbeat=Lane("heartbeat", 50_000),
            admin=Lane("admin", 10_000),
        )


@dataclass(frozen=True, slots=True)
class Processors:
    """What the two RocketMQ ports of a broker serve."""

    main: Table
    fast: Table
    """Of the port two below: no pulls."""
    send_path: SendPath


def build_processors(
    services: RocketmqServices,
    loop: asyncio.AbstractEventLoop,
    hooks: Sequence[Hook] = (),
) -> Processors:
    """Build the tables of both ports over the same services."""
    lanes = Lanes.made()
    main = build_table(_rows(services, loop, lanes), hooks)
    return Processors(
        main=main, fast=main.for_fast_port(), send_path=SendPath(services, lanes.send, main)
    )


def _rows(services: RocketmqServices, loop: asyncio.AbstractEventLoop, lanes: Lanes) -> list[Row]:
    send = SendProcessor(services, loop)
    back = SendBackProcessor(services)
    pull = PullProcessor(services)
    offset = OffsetProcessor(services)
    member = MemberProcessor(services)
    query = QueryProcessor(services)
    return [
        Row(Code.SEND_MESSAGE, send.send, lanes.send),
        Row(Code.SEND_MESSAGE_V2, send.send, lanes.send),
        Row(Code.SEND_BATCH_MESSAGE, send.send, lanes.send),
        Row(Code.CONSUMER_SEND_MSG_BACK, back.send_back, lanes.send),
        Row(Code.PULL_MESSAGE, pull.pull, lanes.pull, fast=False),
        Row(Code.LITE_PULL_MESSAGE, pull.pull, lanes.pull, fast=False),
        Row(Code.QUERY_CONSUMER_OFFSET, offset.query, lanes.client),
        Row(Code.UPDATE_CONSUMER_OFFSET, offset.update, lanes.client),
        Row(Code.GET_MAX_OFFSET, offset.end, lanes.client),
        Row(Code.GET_MIN_OFFSET, offset.smallest, lanes.client),
        Row(Code.SEARCH_OFFSET_BY_TIMESTAMP, offset.by_time, lanes.client),
        Row(Code.GET_EARLIEST_MSG_STORETIME, offset.earliest_time, lanes.client),
        Row(Code.HEART_BEAT, member.heartbeat, lanes.heartbeat),
        Row(Code.UNREGISTER_CLIENT, member.unregister, lanes.client),
        Row(Code.GET_CONSUMER_LIST_BY_GROUP, member.consumer_list, lanes.client),
        Row(Code.CHECK_CLIENT_CONFIG, member.check_config, lanes.client),
        Row(Code.LOCK_BATCH_MQ, member.lock, lanes.client),
        Row(Code.UNLOCK_BATCH_MQ, member.unlock, lanes.client),
        Row(Code.VIEW_MESSAGE_BY_ID, query.view, lanes.query),
        Row(Code.QUERY_MESSAGE, query.query, lanes.query),
    ]
