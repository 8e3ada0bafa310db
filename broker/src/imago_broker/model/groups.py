"""The settings of one consumer group as a value, with RocketMQ's defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from imago_broker.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a consumer group may do and how its failed messages are tried again."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)
    forbidden_topics: tuple[str, ...] = ()
    """Topics that the group may not read, sorted."""

    def __post_init__(self) -> None:
        if problem := names.group_problem(self.name):
            raise ValueError(problem)

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored with the log."""
        stored = asdict(self)
        forbidden = list(stored.pop("forbidden_topics"))
        # Nothing forbidden: the form that every version has written.
        return stored | {"forbidden_topics": forbidden} if forbidden else stored

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GroupConfig:
        """Read `to_json`'s form; fields of a later version are dropped."""
        known = {f.name for f in fields(cls)}
        found = {key: item for key, item in value.items() if key in known}
        return cls(**found | {"forbidden_topics": tuple(found.get("forbidden_topics", ()))})
