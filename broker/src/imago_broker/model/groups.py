"""The settings of one consumer group as a value, with RocketMQ's defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_broker.model import bounds, names
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRY_QUEUES_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a consumer group may do and how its failed messages are tried again."""

    name: str
    consume_enable: bool = bounds.flag(True)
    consume_from_min_enable: bool = bounds.flag(True)
    consume_broadcast_enable: bool = bounds.flag(True)
    consume_message_orderly: bool = bounds.flag(False)
    retry_queues: int = bounds.whole(1, 0, RETRY_QUEUES_MAX)
    """0: what consumers give back is forgotten, as at RocketMQ."""
    retry_max_times: int = bounds.whole(16, -1, bounds.INT_HIGH)
    broker_id: int = bounds.whole(0, bounds.LONG_LOW, bounds.LONG_HIGH)
    which_broker_when_consume_slowly: int = bounds.whole(1, bounds.LONG_LOW, bounds.LONG_HIGH)
    notify_consumer_ids_changed_enable: bool = bounds.flag(True)
    group_sys_flag: int = bounds.whole(0, bounds.INT_LOW, bounds.INT_HIGH)
    consume_timeout_minute: int = bounds.whole(15, 0, bounds.INT_HIGH)
    attributes: Mapping[str, str] = bounds.texts_by_name()
    forbidden_topics: tuple[str, ...] = bounds.texts()
    """Topics that the group may not read, sorted."""

    def __post_init__(self) -> None:
        if problem := names.group_problem(self.name):
            raise WrongError(problem)
        bounds.require(self)

    @property
    def attempts(self) -> int:
        """How often a message is given to the group's consumers in all, before it is given up.

        Once at least, also where none is tried again (0), or is said to be less often than that
        (-1); what an int of the wire can say at most stands for as often as need be.
        """
        return min(max(self.retry_max_times, 0) + 1, bounds.INT_HIGH)

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored with the log."""
        stored = asdict(self)
        forbidden = list(stored.pop("forbidden_topics"))
        # Nothing forbidden: the form that every version has written.
        return stored | {"forbidden_topics": forbidden} if forbidden else stored

    @classmethod
    def said(cls, value: Mapping[str, Any]) -> GroupConfig:
        """Read `to_json`'s form of another broker; ValueError for what no group can be."""
        return cls(name=names.said_text(value, "name"), **bounds.given(cls, value))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GroupConfig:
        """Read `to_json`'s form, also as older versions let it be: within bounds.

        Fields of a later version are dropped. KeyError or ValueError for what nobody can read.
        """
        stored = {**value, "forbidden_topics": tuple(value.get("forbidden_topics", ()))}
        return cls(name=value["name"], **bounds.mended(cls, stored))
