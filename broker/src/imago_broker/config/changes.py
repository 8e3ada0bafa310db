"""A new configuration for a running broker: what takes effect now, what waits for a restart."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.config.settings import BrokerConfig, Scalar

TOPICS = "topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The difference between the configuration in force and a new one."""

    config: BrokerConfig
    """What is in force from now on: the old one with the new one's dynamic keys and topics."""
    applied: tuple[str, ...]
    """Dynamic keys whose value changed."""
    waiting: tuple[str, ...]
    """Other keys whose value changed: they need a restart."""
    topics: Mapping[str, Mapping[str, Scalar]]
    """Declared topics that are new or declared differently."""
    removed: tuple[str, ...] = ()
    """Topics that MetaQ's server.ini declares no more."""


def compare(old: BrokerConfig, new: BrokerConfig) -> Changes:
    """Return what changes on the way from one configuration to the other."""
    sections: dict[str, Any] = {}
    applied: list[str] = []
    waiting: list[str] = []
    for section in fields(old):
        if section.name == TOPICS:
            continue
        before, after = getattr(old, section.name), getattr(new, section.name)
        taken = {}
        for key in fields(before):
            value = getattr(after, key.name)
            if value == getattr(before, key.name):
                continue
            dynamic = key.metadata["dynamic"]
            (applied if dynamic else waiting).append(f"{section.name}.{key.name}")
            if dynamic:
                taken[key.name] = value
        sections[section.name] = replace(before, **taken)
    topics = {
        name: settings for name, settings in new.topics.items() if old.topics.get(name) != settings
    }
    gone = old.declared.keys() - new.declared.keys() if new.metaq.server_ini else ()
    kept = {name: each for name, each in old.declared.items() if name not in gone}
    return Changes(
        config=replace(old, topics={**kept, **new.topics}, **sections),
        applied=tuple(applied),
        waiting=tuple(waiting),
        topics=topics,
        removed=tuple(sorted(gone)),
    )
