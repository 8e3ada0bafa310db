"""Putting the MetaQ port together."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imago_broker.config.live import LiveSettings
from imago_broker.config.metaq.metaq_render import render
from imago_broker.processors.metaq.access.guard import GuardedProcessors
from imago_broker.processors.metaq.assembly import MetaqAssembly
from imago_broker.processors.metaq.identity import MetaqFace, MetaqIdentity
from imago_broker.processors.metaq.realtime import RealTimeStatistics
from imago_broker.processors.metaq.table import build_processors
from imago_broker.server.text.text_session import TextLimits, TextSession

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from imago_broker.app.core_services import CoreServices
    from imago_broker.app.ports.listeners import Ports
    from imago_broker.config import BrokerConfig
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.metrics import MetaqCounters
    from imago_broker.ports import Clock
    from imago_broker.processors.metaq.patterns import Patterns
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.processors.metaq.table import MetaqProcessors
    from imago_broker.server.listener import Listener
    from imago_broker.service.serving_rules import ServingRules
    from imago_wire.text.items import Item


class ConfigFile:
    """The configuration in force in the form of MetaQ's own file."""

    def __init__(self, current: Callable[[], BrokerConfig], *, host: str) -> None:
        self._current, self._host = current, host
        self._shown: BrokerConfig | None = None
        self._content = b""

    def __call__(self) -> bytes:
        config = self._current()
        if config is not self._shown:
            self._content, self._shown = render(config, host=self._host), config
        return self._content


@dataclass(frozen=True, slots=True)
class MetaqPort:
    """The port as it runs."""

    identity: MetaqIdentity
    settings: LiveSettings[MetaqSection]
    patterns: LiveSettings[Patterns]
    stats: Callable[[str], Awaitable[bytes]]
    """What `stats` answers to an item."""
    run: Callable[[Peer, Sequence[Item], int], int]
    """Works on scanned commands of a peer, with the rights that it has."""
    realtime: RealTimeStatistics

    def apply(self, config: BrokerConfig) -> None:
        """Put changed settings in force."""
        self.settings.current = config.metaq
        self.patterns.current = config.patterns


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
    ports: Ports,
    config: BrokerConfig,
    *,
    host: str,
    core: CoreServices,
    clock: Clock,
    counters: MetaqCounters,
    config_file: Callable[[], bytes],
    serving_rules: ServingRules,
    when_published: Callable[[str, Callable[[], None]], bool],
) -> MetaqPort:
    """Have all listeners for it, without and with TLS, speak MetaQ."""
    own = (ports.metaq, ports.metaq_tls)
    doors = {entrance: entrance.ports.get("metaq") for entrance in ports.entrances}
    others = {entrance: door for entrance, door in doors.items() if door is not None}
    parts = MetaqAssembly(
        face=MetaqFace(
            identity=MetaqIdentity(
                broker_id=config.metaq_broker_id,
                host=host,
                port=config.metaq.advertised_port or ports.metaq.port,
            ),
            settings=core.metaq_settings,
            serving_rules=serving_rules,
            clock=clock,
            counters=counters,
            realtime=RealTimeStatistics(clock.monotonic_ms()),
        ),
        patterns=LiveSettings(config.patterns),
        messages=core.messages,
        topics=core.topics,
        transactions=core.metaq_transactions,
        rng=random.Random(),  # noqa: S311  spreads load over partitions
        budget=ports.budget,
        connections=lambda: sum(each.connections for each in (*own, *others.values())),
        config_file=config_file,
        when_published=when_published,
    )

    def guard(processors: MetaqProcessors) -> MetaqProcessors | GuardedProcessors:
        if not config.acl.enabled:
            return processors
        return GuardedProcessors(
            processors,
            core.access,
            core.quotas,
            core.metaq_settings,
            core.metaq_transactions.notes.topics_of,
        )

    limits = text_limits(config)

    def serve(listener: Listener, processors: MetaqProcessors | GuardedProcessors) -> None:
        listener.serve(lambda: TextSession(processors, limits, ports.budget, ports.input_budget))

    processors = build_processors(parts)
    guarded = guard(processors)
    for each in own:
        serve(each, guarded)
    for entrance, door in others.items():
        told = replace(
            parts.face.identity,
            host=entrance.setting.host or host,
            port=entrance.told("metaq"),
        )
        rules = serving_rules.at(entrance.name)
        face = replace(parts.face, identity=told, serving_rules=rules)
        serve(door, guard(build_processors(replace(parts, face=face))))
    return MetaqPort(
        identity=parts.face.identity,
        settings=parts.face.settings,
        patterns=parts.patterns,
        stats=processors.stats_text,
        run=guarded.run,
        realtime=parts.face.realtime,
    )
