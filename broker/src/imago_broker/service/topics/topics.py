"""The topics of this shard: made, changed, deleted; kept in the log's metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imago_broker.core.metaq.metaq_filters import filters_of
from imago_broker.core.sql92.errors import FilterError
from imago_broker.errors import HidesMessagesError, InvalidNameError, RequestError
from imago_broker.model import names
from imago_broker.model.topics.attributes import attributes_problem, kept_by_brokers
from imago_broker.model.topics.sealing import kept, sealed, unsealed
from imago_broker.model.topics.system_topics import own_topic, system_topics
from imago_broker.model.topics.topics import (
    MATERIALISED,
    METAQ_BEGIN,
    METAQ_FILTER,
    PERM_INHERIT,
    TopicConfig,
    queues_problem,
    unread_problem,
)
from imago_broker.service.puts.light_queues import LightQueues, is_stored_light
from imago_broker.service.topics.topic_handles import LEVELS, TopicHandles
from imago_broker.service.topics.topic_intake import TopicIntake

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

TopicChange = Callable[[str, "TopicConfig | None"], None]
"""(name, new settings, or None when the topic is deleted)."""

QuotaProblem = Callable[["TopicConfig", "TopicConfig | None"], "str | None"]
"""(wanted, what is in force) to why it cannot be."""


def _no_quota(_: TopicConfig, __: TopicConfig | None) -> None:
    return None


class TopicService:
    """All topics. Changes are in the log before these methods return."""

    def __init__(
        self,
        store: MessageStore,
        *,
        default_level: Acknowledgement,
        topics_max: int,
        auto_create_enabled: bool,
        default_queues: int,
        before_change: Callable[[], None],
        cluster: str = "",
        light: LightQueues | None = None,
    ) -> None:
        """`before_change` appends the puts that are gathered, so that none outlives its topic.

        The replies of a `cluster` have a topic of their own; without a name there is none.
        """
        self.on_change: list[TopicChange] = []
        """Called after each change, for registration and caches."""
        self._store = store
        self.topics_max = topics_max
        self._auto_create_enabled = auto_create_enabled
        self._default_queues = default_queues
        self._before_change = before_change
        self.cluster = cluster
        self.intake = TopicIntake(self._template_changed)
        self._quota_problem: QuotaProblem = _no_quota
        self.light = LightQueues(store) if light is None else light
        self._configs = _stored(store)
        self.handles = TopicHandles(
            self._configs, store, default_level=default_level, before_change=before_change
        )
        self.with_stat = {name for name, config in self._configs.items() if config.metaq_stat}
        """Topics that ask for MetaQ's real-time statistics of their own."""
        if store.leading:
            self.ensure_system_topics()

    def limit_by(self, quota_problem: QuotaProblem) -> None:
        """Have topics made, and given more queues, only where this names no problem."""
        self._quota_problem = quota_problem

    @property
    def may_change(self) -> bool:
        """Whether this member writes the log, and so the topics."""
        return self._store.leading

    @property
    def auto_create_enabled(self) -> bool:
        """Whether a send to an unknown topic may make it out of the template TBW102."""
        return self._auto_create_enabled

    @auto_create_enabled.setter
    def auto_create_enabled(self, enabled: bool) -> None:
        if enabled != self._auto_create_enabled:
            self._auto_create_enabled = enabled
            self._template_changed()

    def _template_changed(self) -> None:
        template = self._configs.get(names.DEFAULT_TOPIC)
        if template is not None:  # a member that has never led may not have it yet
            for listener in self.on_change:
                listener(template.name, template)

    def is_public(self, name: str) -> bool:
        """Whether clients may find the topic: not the template while nothing comes of it."""
        return name != names.DEFAULT_TOPIC or (
            self._auto_create_enabled and not self.intake.cordoned
        )

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic's settings; each light queue has the same, where there are any."""
        found = self._configs.get(name)
        return self.light.config(name) if found is None else found

    def all(self) -> list[TopicConfig]:
        """Return the settings of all topics, by name."""
        return [self._configs[name] for name in sorted(self._configs)]

    def create_or_update(
        self, config: TopicConfig, *, hide_messages: bool = False, sent_to: bool = False
    ) -> TopicConfig:
        """Make the topic, or change it to these settings; return what is now in force.

        Queues that hold messages stay readable unless `hide_messages` lets them go. `sent_to`: see
        `names.own_problem`; the broker's own are nobody else's to make or change.
        """
        if config.name not in self._configs:
            light = self.light.config(config.name)
            if light is not None:
                return light  # as at RocketMQ, which changes none and says so to nobody
        config = self.check(config, hide_messages=hide_messages, sent_to=sent_to)
        old = self._configs.get(config.name)
        if old is None:
            self.intake.require_open(config.name)
        if old is not None and (messages := self.hidden_by(config)):
            logger.warning(
                "topic_hides_messages topic=%s messages=%d queues=%d/%d",
                config.name,
                messages,
                config.read_queues,
                old.read_queues,
            )
        return self._put(config, old)

    def check(
        self, config: TopicConfig, *, hide_messages: bool = False, sent_to: bool = False
    ) -> TopicConfig:
        """Return what would be in force; RequestError where `create_or_update` would refuse."""
        old = self._configs.get(config.name)
        problem = names.own_problem(config.name, self.cluster, sent_to=sent_to)
        problem = problem or settings_problem(config, old, new=old is None)
        problem = problem or self._quota_problem(config, old)
        problem = problem or self.light.topic_problem(config.name, ordinary=old is not None)
        if not hide_messages:
            problem = problem or unread_problem(old, config)
        if problem is not None:
            raise RequestError(f"topic {config.name}: {problem}")
        if old is None and len(self._configs) >= self.topics_max:
            raise RequestError(f"there are {self.topics_max} topics already, which is the limit")
        if old is None or old == config:
            return old or kept(None, config)
        if old.dual != config.dual:
            raise RequestError(
                f"topic {config.name}: whether MetaQ clients may read it is fixed when it is made"
            )
        # Members keep MetaQ's files from then on, and begins of partitions; there is no way back.
        stays = {**config.attributes, **kept_by_brokers(old.attributes)}
        config = kept(old, replace(config, attributes=stays))
        if not hide_messages:
            self._require_queues(old, config)
        return config

    def _require_queues(self, old: TopicConfig, config: TopicConfig) -> None:
        """Refuse a change after which messages, or the whole topic, would not be found."""
        if messages := self.hidden_by(config):
            raise HidesMessagesError(
                config.name, messages=messages, kept=config.read_queues, queues=old.read_queues
            )
        if problem := queues_problem(config):
            raise RequestError(f"topic {config.name}: {problem}")

    def hidden_by(self, config: TopicConfig) -> int:
        """Return how many messages readers would no longer find with these settings."""
        old = self._configs.get(config.name)
        if old is None:
            return 0
        gone = range(kept(old, config).read_queues, old.read_queues)
        if gone:
            self._before_change()
        ranges = (self._store.queue_range(config.name, queue) for queue in gone)
        return sum(end - first for first, end in ranges)

    def seal(self, name: str, *, until_ms: int, cause: str) -> TopicConfig | None:
        """Have a topic take no more messages here; None when there is none.

        The log, and so the shard's next master, has it too. `handles.linger` serves some still.
        """
        old = self._configs.get(name)
        return old and self._put(sealed(old, until_ms=until_ms, cause=cause), old)

    def unseal(self, name: str) -> TopicConfig | None:
        """Have a sealed topic take messages as before; None when there is no such topic."""
        old = self._configs.get(name)
        return old and self._put(unsealed(old), old)

    def _put(self, config: TopicConfig, old: TopicConfig | None) -> TopicConfig:
        if config == old:
            return config
        self._before_change()
        self._store.create_topic(config.name, config.to_json())
        self._configs[config.name] = config
        self._changed(config.name, config)
        logger.info(
            "%s topic=%s queues=%d/%d",
            "topic_created" if old is None else "topic_changed",
            config.name,
            config.write_queues,
            config.read_queues,
        )
        return config

    def delete(self, name: str) -> bool:
        """Delete a topic with its messages; False when there is none."""
        if name in self.light:
            self._before_change()
            return bool(self.light.delete([name]))
        if name not in self._configs:
            return False
        if names.is_system(name, self.cluster):
            raise RequestError(f"topic {name} belongs to the broker itself")
        self._before_change()
        self._store.delete_topic(name)
        del self._configs[name]
        self.handles.open_all(name)
        self._changed(name, None)
        logger.info("topic_deleted topic=%s", name)
        return True

    def auto_create(
        self, name: str, *, default_topic: str, default_queues: int, for_retry: bool = False
    ) -> TopicConfig | None:
        """Make a topic as RocketMQ does for a send to an unknown one; None: it may not be made.

        The template gives the permission, less its inherit bit, and the most queues. A group's
        retry topic needs no template and has one queue.
        """
        if (known := self.get(name)) is not None:
            return known
        if problem := names.topic_problem(name):
            raise InvalidNameError(problem)
        if for_retry:
            return self.create_or_update(TopicConfig(name=name, read_queues=1, write_queues=1))
        template = self._configs.get(default_topic)
        if template is None or not self._inheritable(template):
            return None
        queues = max(1, min(default_queues, template.write_queues))
        return self.create_or_update(
            TopicConfig(
                name=name,
                read_queues=queues,
                write_queues=queues,
                perm=template.perm & ~PERM_INHERIT,
                filter_type=template.filter_type,
            ),
            sent_to=True,
        )

    def materialise(self, name: str) -> None:
        """Have the store keep MetaQ's own files of a topic from now on."""
        config = self._configs.get(name)
        if config is not None and config.dual and not config.materialised:
            self._store.set_materialised(name)
            self._put(config.with_attributes(**{MATERIALISED: "true"}), config)

    def delete_partitions(self, name: str, numbers: Iterable[int]) -> dict[int, int]:
        """Let MetaQ's clients find nothing of what these partitions hold now.

        Returns the position at which each begins from now on. RequestError where this member does
        not lead, or the topic is none of MetaQ's.
        """
        config = self._configs.get(name)
        if config is None or not config.dual or not self.may_change:
            raise RequestError("only the master of the shard deletes partitions of MetaQ's topics")
        self._before_change()
        begins = {number: self._store.position_range(name, number)[1] for number in numbers}
        attributes = dict(config.attributes) | {
            f"{METAQ_BEGIN}{number}": str(begin) for number, begin in begins.items()
        }
        self._put(replace(config, attributes={**attributes, MATERIALISED: "true"}), config)
        return begins

    def _inheritable(self, template: TopicConfig) -> bool:
        return self.is_public(template.name) and bool(template.perm & PERM_INHERIT)

    def _changed(self, name: str, config: TopicConfig | None) -> None:
        self.handles.forget(name)
        if config is not None and config.metaq_stat:
            self.with_stat.add(name)
        else:
            self.with_stat.discard(name)
        for listener in self.on_change:
            listener(name, config)

    def refresh(self, changed: Iterable[str]) -> None:
        """Read these topics again: the leader's log has made, changed or deleted them."""
        changed, stored = list(changed), self._store.topics()
        self.light.refresh(changed, stored)
        for name in changed:
            if name == names.META_TOPIC or is_stored_light(stored.get(name)):
                continue
            config = _read(name, stored[name]) if name in stored else None
            if config == self._configs.get(name):
                continue
            if config is None:
                del self._configs[name]
                self.handles.open_all(name)
            else:
                self._configs[name] = config
            self._changed(name, config)

    def ensure_system_topics(self) -> None:
        """Have the topics that the broker itself needs as they have to be; needs to lead."""
        used = sorted(names.BROKERS_ALONE & self._configs.keys())
        always = system_topics(self.cluster, self._default_queues)
        wanted = {config.name: config for config in (*map(own_topic, used), *always)}
        for config in wanted.values():
            known = self._configs.get(config.name)
            made = kept(known, config)  # on a shard that is drained it is sealed
            if known != made:
                self._store.create_topic(made.name, made.to_json())
                self._configs[made.name] = replace(made)
                self._changed(made.name, made)

    def ensure_own(self, *missing: str) -> None:
        """Make those of the broker's own topics, or of groups', that are missing, whatever limits.

        The broker needs them from now on, or for messages that were taken and wait for them.
        """
        for name in missing:
            if name not in self._configs:
                self.intake.require_open(name)
                self._put(own_topic(name), None)


def settings_problem(config: TopicConfig, old: TopicConfig | None, *, new: bool) -> str | None:
    """Return why no topic may have these settings, whatever else there is, or None.

    One that there is may lose all its queues, where its messages may be hidden; none begins so.
    """
    problem = queues_problem(config) if new else None
    problem = problem or attributes_problem(
        config.attributes, acknowledgements=LEVELS, before=old.attributes if old else None
    )
    if problem is None and any(name.startswith(METAQ_FILTER) for name in config.attributes):
        try:
            filters_of(config.attributes)
        except FilterError as error:
            return str(error)
    return problem


def _stored(store: MessageStore) -> dict[str, TopicConfig]:
    configs: dict[str, TopicConfig] = {}
    for name, value in store.topics().items():
        if name == names.META_TOPIC or is_stored_light(value):
            continue
        config = _read(name, value)
        if config is not None:
            configs[name] = config
    return configs


def _read(name: str, value: dict[str, Any]) -> TopicConfig | None:
    try:
        return TopicConfig.from_json({"name": name, **value})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # One topic that cannot be read must not keep all others from being served.
        logger.warning("topic_unreadable topic=%r error=%s", name, error)
        return None
