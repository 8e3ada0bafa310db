"""The limits of the product that are constants, and how a test crosses each of them.

A limit that no test meets hides mistakes at its border. A test that lowers one names it (or passes
the argument whose default it is) beside its module; of every other limit `KEPT` says why none does.
The store and the replication have a table of their own: `small_limits`.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from imago_testing.small_limits import PACKAGES, assigned

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SOURCES = ("broker/src", "operator/src", "spark-apps/src")
LIMIT = re.compile(r"_(MAX|LIMIT|AT_ONCE)$")


class Limit(NamedTuple):
    """One constant."""

    module: str
    name: str
    arguments: frozenset[str]
    """Parameters that have it as their default."""


def limits() -> Iterator[Limit]:
    """Yield the limits outside the store and the replication."""
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT / source).with_suffix("").parts)
            if module.startswith(PACKAGES):
                continue
            tree = ast.parse(path.read_text())
            for name, _ in assigned(tree):
                if LIMIT.search(name):
                    yield Limit(module, name, frozenset(_defaults(tree, name)))


def _defaults(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            last = given.args[len(given.args) - len(given.defaults) :]
            for argument, value in [
                *zip(last, given.defaults, strict=True),
                *zip(given.kwonlyargs, given.kw_defaults, strict=True),
            ]:
                if isinstance(value, ast.Name) and value.id == name:
                    yield argument.arg


def is_met(limit: Limit) -> bool:
    """Whether a test names the limit or sets it by an argument, beside its module's name."""
    home = limit.module.rpartition(".")[2]
    ways = {limit.name, *(f"{argument}=" for argument in limit.arguments)}
    return any(home in words and not ways.isdisjoint(words) for words in _tests())


@cache
def _tests() -> tuple[frozenset[str], ...]:
    """The words of each test file; those that are set or passed come with their sign, too."""
    aside = {Path(__file__), Path(__file__).with_name("small_limits.py")}
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path not in aside]
    return tuple(frozenset(re.findall(r"\w+", t)) | set(re.findall(r"\w+=", t)) for t in texts)


KEPT: dict[str, dict[str, str]] = {
    "a bound of a format, a protocol or a number's type": {
        "imago_broker.admin.resources.messages": "TIME_MAX",
        "imago_broker.app.ports.input_memory": "NO_LIMIT",
        "imago_broker.server.connection_places": "NO_LIMIT",
        "imago_broker.core.shard.machine": "EPOCH_MAX",
        "imago_broker.model.topics.attributes": "NUMBER_MAX",
        "imago_broker.model.groups": "RETRY_QUEUES_MAX",
        "imago_broker.model.registry.cluster": "SHARD_MAX REPLICA_MAX PORT_MAX QUEUES_MAX"
        " NUMBER_MAX",
        "imago_broker.model.names": "TOPIC_SIZE_MAX PREFIXED_TOPIC_SIZE_MAX FOREIGN_TOPIC_SIZE_MAX"
        " SUBSCRIPTION_SIZE_MAX RETRYING_GROUP_SIZE_MAX",
        "imago_broker.model.pipelines": "NUMBER_MAX",
        "imago_wire.remoting.staged": "SAID_BYTES_MAX SINK_SIZE_MAX",
        "imago_broker.model.access.quotas": "LIMIT_MAX",
        "imago_broker.model.registry.shard": "MEMBERS_MAX UUID_SIZE_MAX",
        "imago_broker.model.topics.system_topics": "DELAY_LEVELS_MAX",
        "imago_broker.config.sections.relations": "HOST_BYTES_MAX _METAQ_ID_MAX",
        "imago_broker.processors.rocketmq.rules": "GROUP_SIZE_MAX",
        "imago_broker.service.delays.levels.levels": "LEVELS_MAX",
        "imago_cli.up.plan": "PORT_MAX",
        "imago_client.blocking.rocketmq.connection": "_OPAQUE_MAX",
        "imago_client.blocking.metaq": "_OPAQUE_MAX _LINE_BYTES_MAX",
        "imago_client.rocketmq.connection": "_OPAQUE_MAX",
        "imago_client.naming": "TOPIC_CHARACTERS_MAX",
        "imago_client.metaq.connection": "_OPAQUE_MAX _LINE_BYTES_MAX",
        "imago_client.metaq.transacting": "XID_PART_BYTES_MAX",
        "imago_client.metaq.values": "BODY_BYTES_MAX",
        "imago_wire.records._record_py": "I32_MAX I64_MAX STORE_MS_MAX PARTS_SIZE_MAX",
        "imago_wire.records._scan_py": "_RECORD_SIZE_MAX",
        "imago_wire.compression": "_ZSTD_WINDOW_MAX",
        "imago_wire.record_format.entries": "QUEUE_ID_MAX",
        "imago_wire.record_format.layout": "TOPIC_BYTES_V1_MAX TOPIC_BYTES_MAX BODY_BYTES_MAX"
        " RESERVED_SIZE_MAX"
        " METAQ_BROKER_ID_MAX",
        "imago_wire.remoting.bodies.fields": "_LONG_MAX",
        "imago_wire.remoting.header": "_INT_MAX _SHORT_MAX",
        "imago_wire.text._text_py": "_I32_MAX",
        "imago_operator.broker_rules.reading": "SHOWN_CHARS_MAX",
        "imago_operator.spec.cluster.brokers": "SHARD_ID_MAX REPLICAS_MAX",
        "imago_operator.spec.schema.common": "NAME_SIZE_MAX TOPIC_SIZE_MAX GROUP_SIZE_MAX"
        " USER_SIZE_MAX"
        " QUANTITY_KEY_SIZE_MAX",
        "imago_operator.spec.schema.fields": "TEXT_SIZE_MAX ITEMS_MAX",
        "imago_operator.spec.rules": "_ID_MAX",
        "imago_operator.spec.user": "ACLS_MAX HOSTS_MAX",
        "imago_operator.spec.schema.values": "TEXT_SIZE_MAX",
    },
    "how long something is waited for, or may be asked to take: nothing is cut by it": {
        "imago_broker.admin.shards.opening": "WAIT_SECONDS_MAX",
        "imago_broker.app.broker": "PUBLISH_SECONDS_MAX",
        "imago_broker.app.registration": "UNREGISTER_SECONDS_MAX",
        "imago_broker.app.member.shard_member": "SETTLE_SECONDS_MAX",
        "imago_broker.config.cron": "YEARS_AHEAD_MAX",
        "imago_broker.namesrv.foreign": "LIFE_MS_MAX",
        "imago_broker.namesrv.smallest_ids": "TELLING_SECONDS_MAX",
        "imago_broker.features.pop.pop_requests": "POLL_MS_MAX INVISIBLE_MS_MAX",
        "imago_broker.server.relay.relay": "CONNECT_SECONDS_MAX PATIENCE_SECONDS_MAX",
        "imago_broker.service.delays.levels.levels": "TURN_MS_MAX",
        "imago_broker.service.delays.levels.level": "LOOK_MS_MAX",
        "imago_broker.service.delays.timers.timers": "LOOK_MS_MAX",
        "imago_broker.service.topics.lingering": "LOOK_SECONDS_MAX",
        "imago_cli.clusters.cluster": "ASK_SECONDS_MAX",
        "imago_cli.demo.traffic": "READ_SECONDS_MAX",
        "imago_cli.doctor.checks": "SKEW_SECONDS_MAX FUTURE_SECONDS_MAX",
        "imago_cli.kubectl.tool": "SECONDS_MAX",
        "imago_cli.messages.produce": "DELAY_S_MAX",
        "imago_cli.messages.request": "TIMEOUT_S_MAX",
        "imago_cli.up.supervisor": "BACKOFF_SECONDS_MAX",
        "imago_client.blocking.rocketmq.group": "_PAUSE_S_MAX",
        "imago_client.blocking.rocketmq.scan": "_PAUSE_S_MAX",
        "imago_client.core.failover": "_PAUSE_S_MAX",
        "imago_client.core.consuming.popping": "INVISIBLE_S_MAX _PAUSE_S_MAX",
        "imago_client.core.administration.topic_changes": "_ROUTED_S_MAX",
        "imago_client.inflation": "WAIT_S_MAX",
        "imago_objects.objects": "PARTS_AT_ONCE",
        "imago_operator.observing.windows": "DURATION_MAX",
        "imago_spark.pipelines.streaming": "BATCH_SECONDS_MAX",
    },
    "shortens only what people read": {
        "imago_broker.shard_work.remaining": "LISTED_MAX",
        "imago_broker.core.levelling": "NAMED_MAX",
        "imago_broker.admin.shards.fencing": "WHY_CHARS_MAX",
        "imago_broker.admin.views": "TEXT_CHARS_MAX",
        "imago_broker.cluster.desired_writer": "FAILURES_LOGGED_MAX",
        "imago_broker.model.registry.shard": "CAUSE_SIZE_MAX",
        "imago_broker.processors.rocketmq.rows": "REMARK_SIZE_MAX",
        "imago_cli.output": "WIDTH_MAX UNFOLDED_MAX",
        "imago_operator.brokers.http": "TEXT_MAX",
        "imago_operator.contents.groups": "RESULT_MAX",
        "imago_operator.contents.topics": "LISTED_MAX",
        "imago_operator.events": "MESSAGE_MAX NAME_MAX",
        "imago_operator.kube.failures": "TEXT_MAX",
        "imago_operator.pipelines.status": "ERROR_MAX",
        "imago_operator.plan.drift": "SHOWN_MAX KEYS_MAX",
        "imago_operator.plan.members.fencing": "LISTED_MAX",
        "imago_operator.plan.growing": "LISTED_MAX",
        "imago_operator.plan.restarts.rollout": "CURRENT_MAX",
        "imago_operator.plan.storage": "LISTED_MAX",
        "imago_operator.plan.troubles": "LISTED_MAX",
        "imago_operator.reasons.pipeline": "_LIMIT",
        "imago_operator.reporting.status": "MESSAGE_MAX MISTAKE_MAX",
        "imago_spark.pipelines.application": "LAST_WORDS_SIZE_MAX",
        "imago_spark.pipelines.audit": "LISTED_MAX",
    },
}
"""By reason and module: limits that no test lowers."""

UNTESTED: dict[str, str] = {
    "imago_broker.admin.token_review": "KEPT_MAX ASKED_MAX TOKEN_SIZE_MAX ANSWER_MAX",
    "imago_client.core.metaq.ordering": "WAITS_MAX",
    "imago_broker.app.metrics.quota_metrics": "SUBJECTS_MAX",
    "imago_broker.service.access.throttling": "FOUND_MAX",
    "imago_broker.admin.login": "AT_ONCE_MAX",
    "imago_broker.admin.calls.repeating": "KEYS_MAX KEY_LENGTH_MAX",
    "imago_broker.admin.routes": "BODY_BYTES_MAX",
    "imago_broker.shard_work.spreading": "TRIES_MAX",
    "imago_broker.admin.resources.cluster_lists": "NAMES_MAX",
    "imago_broker.app.metrics.group_metrics": "SERIES_MAX",
    "imago_broker.app.ports.input_memory": "INPUT_BYTES_TOTAL_MAX",
    "imago_broker.app.process": "HEAP_BLOCK_BYTES_MAX",
    "imago_broker.app.metrics.usage_metrics": "SERIES_MAX",
    "imago_broker.cluster.desired.desired_topics": "ENDED_MAX",
    "imago_broker.cluster.session.handshake": "_ANSWER_BYTES_MAX",
    "imago_broker.cluster.metaq_tree.metaq_progress": "READS_AT_ONCE",
    "imago_broker.cluster.metaq_tree.publication": "REPAIRS_MAX",
    "imago_broker.cluster.session.watchdog": "_ASKS_A_LIMIT",
    "imago_broker.config.metaq.metaq_file": "TEXT_BYTES_MAX",
    "imago_broker.core.deletion_times": "SCHEDULES_MAX",
    "imago_broker.core.metaq.metaq_filters": "FILTERS_MAX",
    "imago_broker.core.transactions.metaq_transactions": "KEY_SIZE_MAX",
    "imago_broker.core.shard.election": "ROUNDS_MAX",
    "imago_broker.core.sql92.values": "DIGITS_MAX",
    "imago_broker.model.registry.cluster": "ADDRESSES_MAX",
    "imago_broker.model.registry.foreign": "TOPICS_MAX FILTER_SERVERS_MAX SETTINGS_MAX"
    " ATTRIBUTES_MAX",
    "imago_broker.model.registry.shard": "HISTORY_MAX",
    "imago_broker.namesrv.foreign": "BROKERS_MAX",
    "imago_broker.namesrv.pipelines": "VALUE_SIZE_MAX",
    "imago_broker.namesrv.name_settings": "VALUE_CHARS_MAX",
    "imago_broker.processors.metaq.transactions": "RECOVERED_BYTES_MAX",
    "imago_broker.processors.rocketmq.tools.admin_broker": "QUEUE_ENTRIES_MAX",
    "imago_broker.features.pop.assignments": "SHARE_MAX",
    "imago_broker.processors.rocketmq.send.inflating": "IN_LOOP_BYTES_MAX WAITING_BYTES_MAX",
    "imago_broker.processors.rocketmq.tools.original_settings": "VALUE_CHARS_MAX",
    "imago_broker.features.pop.pop_requests": "MESSAGES_MAX",
    "imago_broker.processors.rocketmq.pull.pull_request": "BATCH_MESSAGES_MAX BATCH_BYTES_MAX"
    " MESSAGES_MAX BYTES_MAX",
    "imago_broker.processors.rocketmq.pull.queries": "COUNT_MAX COUNT_LIMIT",
    "imago_broker.processors.rocketmq.pull.subscriptions": "KEPT_CHARS_MAX",
    "imago_broker.features.transactions.transaction_requests": "RESUMED_MAX",
    "imago_broker.server.client_ports": "CONNECTS_MAX",
    "imago_broker.server.relay.probe": "ANSWER_BYTES_MAX",
    "imago_broker.server.relay.relay_ledgers": "HEARTBEAT_BYTES_MAX",
    "imago_broker.server.remoting.remoting_channel": "_JOIN_BYTES_MAX",
    "imago_broker.server.remoting.remoting_port": "OUTPUT_BYTES_TOTAL_MAX INPUT_BYTES_TOTAL_MAX",
    "imago_broker.server.text.text_channel": "JOIN_BYTES_MAX",
    "imago_broker.server.tls.tls_certificates": "_HANDSHAKE_STEPS_MAX",
    "imago_broker.service.transactions.recent_halves": "RECENT_BYTES_MAX",
    "imago_cli.clusters.admin_http": "_ANSWER_BYTES_MAX",
    "imago_cli.demo.records": "_PER_SOURCE_MAX _TEXT_CHARACTERS_MAX _FILE_BYTES_MAX",
    "imago_cli.clusters.moves": "NEWS_LOOKS_MAX",
    "imago_cli.messages.stdin_lines": "_CHUNKS_MAX",
    "imago_cli.up.supervisor": "_READY_LINE_BYTES_MAX",
    "imago_client.blocking.rocketmq.scan": "MESSAGES_MAX",
    "imago_client.rocketmq.connection": "_GATHERED_BYTES_MAX",
    "imago_client.core.consuming.membership": "RECONSUME_TIMES_MAX",
    "imago_client.core.sending.outgoing": "BATCH_MESSAGES_MAX",
    "imago_client.core.consuming.popping": "MESSAGES_MAX",
    "imago_client.core.sending.transacting": "CHECKS_MAX",
    "imago_client.metaq.connection": "_MISSES_MAX _PUTS_MAX _PUTS_BYTES_MAX",
    "imago_wire.remoting.scanning.waiting": "PROPERTIES_MAX WORD_MAX DIGITS_MAX",
    "imago_operator.brokers.admin": "RAISES_MAX",
    "imago_operator.brokers.contents": "PAGES_MAX",
    "imago_operator.brokers.http": "CALLS_MAX ANSWER_MAX CONTEXTS_MAX",
    "imago_operator.brokers.reach": "CLUSTERS_MAX",
    "imago_operator.contents.groups": "TOPICS_MAX",
    "imago_operator.observing.drifts": "OBJECTS_MAX",
    "imago_operator.events": "KEPT_MAX",
    "imago_operator.observing.installations": "REMEMBERED_MAX",
    "imago_operator.kube.http": "CALLS_MAX",
    "imago_operator.kube.objects": "PAGES_MAX",
    "imago_operator.runtime.loop": "GROUP_MAX",
    "imago_operator.reconcilers.cluster": "CORRECTED_MAX REMEMBERED_MAX",
    "imago_operator.observing.revisions": "KEPT_MAX",
    "imago_spark.options": "FETCH_MESSAGES_MAX FETCH_BYTES_MAX",
    "imago_spark.sink_options": "SEND_BYTES_MAX",
}
"""By module: limits that a test should cross and none does yet. Take away from it; add nothing."""


def kept() -> set[tuple[str, str]]:
    """Return the limits for which there is a reason, and those that are still to be tested."""
    tables = [*KEPT.values(), UNTESTED]
    return {(module, name) for table in tables for module, s in table.items() for name in s.split()}
