"""Putting the MetaQ port together."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from imago_broker.config.live import LiveSettings
from imago_broker.processors.metaq.assembly import MetaqAssembly
from imago_broker.processors.metaq.identity import MetaqIdentity
from imago_broker.processors.metaq.realtime import RealTimeStatistics
from imago_broker.processors.metaq.table import build_processors
from imago_broker.server.text_session import TextLimits, TextSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config import BrokerConfig
    from imago_broker.core.budget import InputBudget, OutputBudget
    from imago_broker.metrics import MetaqCounters
    from imago_broker.ports import Clock
    from imago_broker.server.listener import Listener
    from imago_broker.service.messages import MessageService
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics import TopicService


def text_limits(config: BrokerConfig) -> TextLimits:
    """Return what one connection may cost."""
    limits = config.limits
    body_max = max(config.metaq.message_bytes_max, config.rocketmq.message_bytes_max)
    return TextLimits(
        line_bytes_max=config.metaq.line_bytes_max,
        body_bytes_max=body_max,
        output_bytes_pause=limits.output_bytes_pause,
        output_bytes_max=limits.output_bytes_max,
        idle_ms=config.metaq.idle_seconds * 1000,
        input_stall_ms=limits.input_stall_seconds * 1000,
        output_stall_ms=limits.output_stall_seconds * 1000,
    )


def serve_metaq(
    listeners: tuple[Listener, Listener],
    config: BrokerConfig,
    *,
    host: str,
    messages: MessageService,
    topics: TopicService,
    clock: Clock,
    counters: MetaqCounters,
    config_file: bytes,
    serving_rules: ServingRules,
    budget: OutputBudget,
    input_budget: InputBudget,
    when_published: Callable[[str, Callable[[], None]], bool],
) -> MetaqAssembly:
    """Have listeners, without and with TLS, speak MetaQ; return what processors are made from."""
    parts = MetaqAssembly(
        identity=MetaqIdentity(
            broker_id=config.metaq_broker_id,
            host=host,
            port=config.metaq.advertised_port or listeners[0].port,
        ),
        settings=LiveSettings(config.metaq),
        patterns=LiveSettings(config.patterns),
        messages=messages,
        topics=topics,
        store=messages.store,
        serving_rules=serving_rules,
        clock=clock,
        rng=random.Random(),  # noqa: S311  spreads load over partitions
        budget=budget,
        counters=counters,
        realtime=RealTimeStatistics(clock.monotonic_ms()),
        connections=lambda: sum(each.connections for each in listeners),
        config_file=lambda: config_file,
        when_published=when_published,
    )
    processors = build_processors(parts)
    limits = text_limits(config)
    for each in listeners:
        each.protocol_factory = lambda: TextSession(processors, limits, budget, input_budget)
    return parts
