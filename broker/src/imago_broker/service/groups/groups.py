"""Settings of consumer groups."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from imago_broker.errors import RequestError
from imago_broker.model import names
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.attributes import size_problem
from imago_wire.record_format.references import is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_broker.service.puts.light_queues import LightQueues
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

KIND = "group"


class GroupService:
    """All groups' settings; kept in the log's metadata."""

    def __init__(self, store: MessageStore, *, auto_create_enabled: bool, groups_max: int) -> None:
        self._store = store
        self.auto_create_enabled = auto_create_enabled
        self.groups_max = groups_max
        self._configs = _stored(store)
        self.on_closed: list[Callable[[str], None]] = []
        """Called with a group that is deleted, or that may consume no more."""
        self._quota_problem: Callable[[str], str | None] = _no_quota
        self.light: LightQueues | None = None
        """While these are switched on, each group with a name of their kind is there."""

    def limit_by(self, quota_problem: Callable[[str], str | None]) -> None:
        """Have groups made only where this names no problem."""
        self._quota_problem = quota_problem

    def get(self, name: str) -> GroupConfig | None:
        """Return a group's settings; those that our own commands read as have the defaults."""
        known = self._configs.get(name)
        unmade = known is None and (name in names.OWN_GROUPS or self._is_light(name))
        return GroupConfig(name=name) if unmade else known

    def _is_light(self, name: str) -> bool:
        light = self.light
        if light is None or not light.enabled or not is_light(name):
            return False
        return names.group_problem(name) is None

    def get_or_create(self, name: str) -> GroupConfig | None:
        """Return the settings, made with defaults when allowed; None: unknown, not to be made."""
        known = self.get(name)
        if known is not None or not self.auto_create_enabled:
            return known
        if len(self._configs) >= self.groups_max or self._new_problem(name):
            return None
        created = GroupConfig(name=name)
        self.update(created)
        return created

    def _new_problem(self, name: str) -> str | None:
        return names.retrying_problem(name) or self._quota_problem(name)

    def check(self, config: GroupConfig) -> None:
        """Raise RequestError where `update` would refuse."""
        old = self._configs.get(config.name)
        if problem := size_problem(config.attributes, old.attributes if old else {}):
            raise RequestError(f"group {config.name}: {problem}")
        if config.name in self._configs or self._is_light(config.name):
            return
        if len(self._configs) >= self.groups_max:
            raise RequestError(f"there are {self.groups_max} groups already, which is the limit")
        if problem := self._new_problem(config.name):
            raise RequestError(f"group {config.name}: {problem}")

    def update(self, config: GroupConfig) -> None:
        """Make or change a group; never one of a light queue's name, as RocketMQ."""
        if config.name not in self._configs and self._is_light(config.name):
            return
        self.check(config)
        if self._configs.get(config.name) == config:
            return
        self._store.put_meta([(KIND, config.name, config.to_json())])
        self._configs[config.name] = config
        logger.info("group_changed group=%s", config.name)
        if not config.consume_enable:
            self._tell_closed(config.name)

    def delete(self, name: str) -> bool:
        """Delete a group's settings; False when there are none."""
        if name not in self._configs:
            return False
        self._store.put_meta([(KIND, name, None)])
        del self._configs[name]
        logger.info("group_deleted group=%s", name)
        self._tell_closed(name)
        return True

    def _tell_closed(self, name: str) -> None:
        for closed in self.on_closed:
            closed(name)

    def refresh(self, changed: Iterable[str]) -> None:
        """Read these groups again: the leader's log has changed them."""
        stored = self._store.meta(KIND)
        for name in changed:
            config = _read(name, stored[name]) if name in stored else None
            if config is None:
                self._configs.pop(name, None)
            else:
                self._configs[name] = config

    def all(self) -> list[GroupConfig]:
        """Return all settings but those of our own commands, by name."""
        return [self._configs[name] for name in sorted(self._configs.keys() - names.OWN_GROUPS)]


def _no_quota(_: str) -> None:
    return None


def _stored(store: MessageStore) -> dict[str, GroupConfig]:
    configs: dict[str, GroupConfig] = {}
    for name, value in store.meta(KIND).items():
        config = _read(name, value)
        if config is not None:
            configs[name] = config
    return configs


def _read(name: str, value: Any) -> GroupConfig | None:
    try:
        return GroupConfig.from_json(value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # One group that cannot be read must not keep a broker from starting.
        logger.warning("group_unreadable group=%r error=%s", name, error)
        return None
