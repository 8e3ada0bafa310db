"""The rows of RocketMQ's tools: topics, groups, progress, settings and figures of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.groups.relays import RelayProcessor
from imago_broker.processors.rocketmq.rows import Row
from imago_broker.processors.rocketmq.settled_elsewhere import SettledLater
from imago_broker.processors.rocketmq.tools.admin_broker import BrokerAdmin
from imago_broker.processors.rocketmq.tools.admin_cold_data import ColdDataAdmin
from imago_broker.processors.rocketmq.tools.admin_groups import GroupAdmin
from imago_broker.processors.rocketmq.tools.admin_progress import ProgressAdmin
from imago_broker.processors.rocketmq.tools.admin_shard import ShardAdmin
from imago_broker.processors.rocketmq.tools.admin_static import StaticTopicAdmin
from imago_broker.processors.rocketmq.tools.admin_topics import TopicAdmin
from imago_broker.processors.rocketmq.tools.original_settings import BrokerSettings
from imago_broker.processors.rocketmq.tools.runtime_info import RuntimeFigures
from imago_broker.processors.rocketmq.tools.shard_permission import ShardPermission
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.processors.rocketmq.rows import Handler


def admin_rows(parts: RocketmqAssembly) -> list[Row]:
    """Return the rows."""
    lanes = parts.lanes
    topic = TopicAdmin(
        store=parts.broker.store,
        topics=parts.broker.topics,
        offsets=parts.broker.offsets,
        clock=parts.broker.clock,
        clients=parts.clients.registry,
        topic_version=parts.names.topic_version,
        identity=parts.identity,
        static_topics=parts.names.static_topics,
    )
    static = StaticTopicAdmin(
        parts.names.static_topics,
        topics=parts.broker.topics,
        identity=parts.identity,
    )
    group = GroupAdmin(
        offsets=parts.broker.offsets,
        groups=parts.broker.groups,
        clock=parts.broker.clock,
        clients=parts.clients.registry,
        resets=parts.clients.resets,
        group_version=parts.names.group_version,
        group_rules=parts.names.group_rules,
    )
    progress = ProgressAdmin(
        store=parts.broker.store,
        topics=parts.broker.topics,
        offsets=parts.broker.offsets,
        groups=parts.broker.groups,
        clients=parts.clients.registry,
        delay=parts.delays.levels,
        identity=parts.identity,
        resetter=parts.clients.resetter,
    )
    settings = BrokerSettings(
        store=parts.broker.store,
        registry=parts.broker.registry,
        serving_rules=parts.broker.serving_rules,
        identity=parts.identity,
        settings=parts.settings,
        told=parts.told,
    )
    broker = BrokerAdmin(
        store=parts.broker.store,
        topics=parts.broker.topics,
        topic_version=parts.names.topic_version,
        settings=settings,
        permission=ShardPermission(
            parts.broker.marks,
            parts.broker.registry,
            parts.identity.broker_name,
            parts.broker.loop,
        ),
        figures=_runtime_figures(parts),
        usage=parts.delivery.usage,
    )
    cold_data = ColdDataAdmin(settings)
    shard = ShardAdmin(
        store=parts.broker.store,
        registry=parts.broker.registry,
        serving_rules=parts.broker.serving_rules,
        identity=parts.identity,
    )
    relay = RelayProcessor(
        store=parts.broker.store, clients=parts.clients.registry, identity=parts.identity
    )
    # A name service that is asked next is to know of these.
    placed: dict[Code, Handler] = {
        Code.UPDATE_AND_CREATE_TOPIC: topic.create,
        Code.UPDATE_AND_CREATE_TOPIC_LIST: topic.create_list,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC: static.update,
        Code.DELETE_TOPIC_IN_BROKER: topic.delete,
    }
    changes: dict[Code, Handler] = {
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: group.update,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: group.update_list,
        Code.DELETE_SUBSCRIPTIONGROUP: group.delete,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN: group.forbid,
        Code.CLONE_GROUP_OFFSET: progress.clone,
        Code.INVOKE_BROKER_TO_RESET_OFFSET: progress.reset,
    }
    # Every member shows what it knows: its own settings and clients, its copy of the metadata.
    shows: dict[Code, Handler] = {
        Code.GET_ALL_TOPIC_CONFIG: topic.all_configs,
        Code.GET_TOPIC_CONFIG: topic.config,
        Code.GET_TOPIC_STATS_INFO: topic.stats,
        Code.QUERY_TOPIC_CONSUME_BY_WHO: topic.who_consumes,
        Code.QUERY_CONSUME_TIME_SPAN: topic.time_span,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topic.system_list,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: group.all_configs,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: group.config,
        Code.GET_CONSUMER_CONNECTION_LIST: group.consumers,
        Code.GET_PRODUCER_CONNECTION_LIST: group.producers,
        Code.GET_ALL_PRODUCER_INFO: group.all_producers,
        Code.QUERY_TOPICS_BY_CONSUMER: group.topics,
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER: group.subscription,
        Code.GET_CONSUME_STATS: progress.stats,
        Code.GET_BROKER_CONSUME_STATS: progress.all_stats,
        Code.GET_ALL_CONSUMER_OFFSET: progress.all_offsets,
        Code.GET_ALL_DELAY_OFFSET: progress.delay_offsets,
        Code.QUERY_CORRECTION_OFFSET: progress.correction,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: relay.consumer_status,
        Code.GET_CONSUMER_RUNNING_INFO: relay.running_info,
        Code.CONSUME_MESSAGE_DIRECTLY: relay.consume_directly,
        Code.GET_BROKER_CONFIG: broker.get_config,
        Code.UPDATE_BROKER_CONFIG: broker.update_config,
        Code.GET_BROKER_RUNTIME_INFO: broker.runtime_info,
        Code.VIEW_BROKER_STATS_DATA: broker.stats,
        Code.QUERY_CONSUME_QUEUE: broker.queue_entries,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE: broker.clean_up,
        Code.CLEAN_UNUSED_TOPIC: broker.clean_up,
        Code.DELETE_EXPIRED_COMMITLOG: broker.clean_up,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: cold_data.update,
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: cold_data.remove,
        Code.GET_COLD_DATA_FLOW_CTR_INFO: cold_data.show,
        Code.SET_COMMITLOG_READ_MODE: cold_data.read_ahead,
        Code.GET_BROKER_HA_STATUS: shard.status,
        Code.EXCHANGE_BROKER_HA_INFO: shard.exchange,
        Code.RESET_MASTER_FLUSH_OFFSET: shard.reset_flush_offset,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE: shard.smallest_id_changed,
        Code.GET_TIMER_CHECK_POINT: shard.timer_check_point,
        Code.GET_TIMER_METRICS: shard.timer_metrics,
    }
    settled = SettledLater(parts.broker.topics_published).answer
    return [
        *(
            Row(code, handler, lanes.admin, Asks.CHANGE, replicated=True, settle=settled)
            for code, handler in placed.items()
        ),
        *(
            Row(code, handler, lanes.admin, Asks.CHANGE, replicated=True)
            for code, handler in changes.items()
        ),
        *(Row(code, handler, lanes.admin, Asks.MEMBER) for code, handler in shows.items()),
    ]


def _runtime_figures(parts: RocketmqAssembly) -> RuntimeFigures:
    return RuntimeFigures(
        store=parts.broker.store,
        messages=parts.broker.messages,
        traffic=parts.delivery.traffic,
        delay=parts.delays.levels,
        history=parts.delivery.history,
        lanes=parts.lanes.by_name,
        clock=parts.broker.clock,
        started_ms=parts.started_ms,
    )
