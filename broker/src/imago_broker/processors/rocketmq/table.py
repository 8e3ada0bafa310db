"""The request codes that a broker serves to RocketMQ clients, a row each.

Those of tools are in `admin_rows`, those of features in their folders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from imago_broker.processors.rocketmq.fast_paths import (
    build_pull_path,
    build_send_path,
    pull_reading,
)
from imago_broker.processors.rocketmq.groups.members import MemberProcessor
from imago_broker.processors.rocketmq.groups.offsets import OffsetProcessor
from imago_broker.processors.rocketmq.pull.pull import PullProcessor
from imago_broker.processors.rocketmq.pull.queries import QueryProcessor
from imago_broker.processors.rocketmq.rows import Row, Table, build_table
from imago_broker.processors.rocketmq.send.half_sends import HalfSends
from imago_broker.processors.rocketmq.send.send import SendProcessor
from imago_broker.processors.rocketmq.send.send_back import SendBackProcessor
from imago_broker.processors.rocketmq.static.static_front import StaticFront
from imago_broker.processors.rocketmq.tools.admin_rows import admin_rows
from imago_broker.processors.rocketmq.users.access_rows import access_rows
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.processors.rocketmq.exchange import Hook
    from imago_broker.processors.rocketmq.pull.pull_path import PullPath
    from imago_broker.processors.rocketmq.pull.subscriptions import MessageSelector
    from imago_broker.processors.rocketmq.rows import Handler
    from imago_broker.processors.rocketmq.send.send_path import SendPath


class _PullColumns(TypedDict):
    elsewhere: Handler
    fast: bool
    filtered: bool


@dataclass(frozen=True, slots=True)
class Processors:
    """What the two RocketMQ ports of a broker serve."""

    main: Table
    fast: Table
    """Of the port two below: no pulls."""
    send_path: SendPath
    pull_path: PullPath
    """Of the main port."""


def build_processors(
    parts: RocketmqAssembly,
    loop: asyncio.AbstractEventLoop,
    hooks: Sequence[Hook] = (),
) -> Processors:
    """Build the tables of both ports over the same parts."""
    front = StaticFront(parts.names.static_topics, parts.broker.others, loop)
    selector = parts.delivery.selector
    pull = PullProcessor(
        pull_reading(parts),
        group_rules=parts.names.group_rules,
        selector=selector,
        offsets=parts.broker.offsets,
        budget=parts.broker.budget,
    )
    users = access_rows(
        parts.broker.access,
        parts.identity,
        parts.lanes.admin,
        parts.broker.pass_users_on,
        parts.broker.spread_users,
    )
    rows = [
        *_client_rows(parts, loop, selector, pull),
        *admin_rows(parts),
        *users,
        *(row for feature in parts.features for row in feature.rows),
    ]
    main = build_table(
        front.before(parts.delivery.turns.patient(rows)),
        hooks,
        serving_rules=parts.broker.serving_rules,
        confirm=parts.broker.messages.acknowledgements.when_replicated,
    )
    return Processors(
        main=main,
        fast=main.for_fast_port(),
        send_path=build_send_path(parts, main),
        pull_path=build_pull_path(parts, main, pull),
    )


def _client_rows(
    parts: RocketmqAssembly,
    loop: asyncio.AbstractEventLoop,
    selector: MessageSelector,
    pull: PullProcessor,
) -> list[Row]:
    lanes = parts.lanes
    send = SendProcessor(
        puts=parts.puts,
        this=parts.this,
        group_rules=parts.names.group_rules,
        halves=HalfSends(parts.transactions.service, parts.settings),
        on_topic_made=parts.names.on_topic_made,
        loop=loop,
    )
    back = SendBackProcessor(
        store=parts.broker.store,
        messages=parts.broker.messages,
        handles=parts.broker.topics.handles,
        group_rules=parts.names.group_rules,
        delay=parts.delays.levels,
        traffic=parts.delivery.traffic,
    )
    offset = OffsetProcessor(
        store=parts.broker.store,
        registry=parts.broker.registry,
        topics=parts.broker.topics,
        offsets=parts.broker.offsets,
        resets=parts.clients.resets,
        group_rules=parts.names.group_rules,
        memory=parts.delivery.memory,
    )
    member = MemberProcessor(
        store=parts.broker.store,
        clock=parts.broker.clock,
        broker_name=parts.identity.broker_name,
        clients=parts.clients,
        group_rules=parts.names.group_rules,
        selector=selector,
    )
    query = QueryProcessor(store=parts.broker.store, clock=parts.broker.clock)
    pulls: _PullColumns = {"elsewhere": pull.redirect, "fast": False, "filtered": True}
    return [
        Row(Code.SEND_MESSAGE, send.send, lanes.send, Asks.CHANGE),
        Row(Code.SEND_MESSAGE_V2, send.send, lanes.send, Asks.CHANGE),
        Row(Code.SEND_BATCH_MESSAGE, send.send, lanes.send, Asks.CHANGE),
        Row(Code.CONSUMER_SEND_MSG_BACK, back.send_back, lanes.send, Asks.CHANGE),
        Row(Code.PULL_MESSAGE, pull.pull, lanes.pull, Asks.MESSAGES, **pulls),
        Row(Code.LITE_PULL_MESSAGE, pull.pull, lanes.pull, Asks.MESSAGES, **pulls),
        Row(Code.QUERY_CONSUMER_OFFSET, offset.query, lanes.client, Asks.STATE, replicated=True),
        Row(Code.UPDATE_CONSUMER_OFFSET, offset.update, lanes.client, Asks.CHANGE, replicated=True),
        Row(Code.GET_MAX_OFFSET, offset.end, lanes.client, Asks.STATE),
        Row(Code.GET_MIN_OFFSET, offset.smallest, lanes.client, Asks.MESSAGES),
        Row(Code.SEARCH_OFFSET_BY_TIMESTAMP, offset.by_time, lanes.client, Asks.MESSAGES),
        Row(Code.GET_EARLIEST_MSG_STORETIME, offset.earliest_time, lanes.client, Asks.MESSAGES),
        # Clients beat to every member and ask any of them who shares their queues.
        Row(Code.HEART_BEAT, member.heartbeat, lanes.heartbeat, Asks.MEMBER),
        Row(Code.UNREGISTER_CLIENT, member.unregister, lanes.client, Asks.MEMBER),
        Row(Code.GET_CONSUMER_LIST_BY_GROUP, member.consumer_list, lanes.client, Asks.MEMBER),
        Row(Code.CHECK_CLIENT_CONFIG, member.check_config, lanes.client, filtered=True),
        Row(Code.LOCK_BATCH_MQ, member.lock, lanes.client, Asks.CHANGE, replicated=True),
        Row(Code.UNLOCK_BATCH_MQ, member.unlock, lanes.client, Asks.CHANGE),
        # A message's id names the member that stored it, whatever that has become since.
        Row(Code.VIEW_MESSAGE_BY_ID, query.view, lanes.query, Asks.MEMBER),
        Row(Code.QUERY_MESSAGE, query.query, lanes.query, Asks.MEMBER),
    ]
