"""Which messages a pull wants: the tags of its subscription, or a SQL92 filter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from imago_broker.core.sql92.errors import FilterError
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.processors.rocketmq.pull.pull_request import FLAG_SUBSCRIPTION
from imago_broker.processors.rocketmq.rows import REMARK_SIZE_MAX
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.client import MessageModel
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.texts.subscriptions import ALL, SQL92, TAG, tag_subscription

if TYPE_CHECKING:
    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.core.sql92.filters import FilterCache, PropertyFilter
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.groups import GroupService
    from imago_wire.remoting.bodies.client import SubscriptionData


KEPT_CHARS_MAX = 256
"""Of a tag expression whose hashes are kept: hashes take some ten times the characters' memory."""
TAGS_OF_ONE = 16
"""Hashes of tags that take about as much memory as one operation of a filter."""


def tag_codes(expression: str) -> frozenset[int] | None:
    """Return the hashes of the tags in `a || b`; None wants everything (empty or `*`).

    ProtocolError for an expression of separators alone; one of blanks wants nothing.
    """
    return _kept_codes(expression) if len(expression) <= KEPT_CHARS_MAX else _tag_codes(expression)


@lru_cache(maxsize=4096)
def _kept_codes(expression: str) -> frozenset[int] | None:
    return _tag_codes(expression)


def _tag_codes(expression: str) -> frozenset[int] | None:
    subscription = tag_subscription("", expression, 0)
    return None if subscription.sub_string == ALL else subscription.code_set


class Selection(NamedTuple):
    """What a reader wants: nothing set wants everything."""

    tags: frozenset[int] | None = None
    """Hashes of tags."""
    wanted: PropertyFilter | None = None

    @property
    def weight(self) -> int:
        """What keeping it costs, in operations of a filter; 0 of what readers usually want."""
        tags = 0 if self.tags is None else len(self.tags) // TAGS_OF_ONE
        return tags + (0 if self.wanted is None else self.wanted.cost)


class Selecting(Protocol):
    """A pull, as far as it says which messages it wants."""

    @property
    def group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def expression_type(self) -> str | None: ...
    @property
    def subscription(self) -> str: ...
    @property
    def sub_version(self) -> int: ...


@dataclass(slots=True, eq=False, kw_only=True)
class MessageSelector:
    """Says what pulls want, by their own subscription or by that of their group."""

    clients: ClientRegistry
    groups: GroupService
    filters: FilterCache
    settings: LiveSettings[RocketmqSection]

    def select(self, request: Selecting) -> Selection:
        """Return what a pull wants; refuse what RocketMQ refuses, in its order."""
        if not request.sys_flag & FLAG_SUBSCRIPTION:
            return self._registered_selection(request)
        return self.select_expression(request.expression_type, request.subscription)

    def select_expression(self, expression_type: str | None, text: str | None) -> Selection:
        """Return what a request wants that brings its own subscription; none wants everything."""
        try:
            found = self._selection(expression_type, text or "")
        except (ProtocolError, FilterError) as error:
            remark = f"parse the consumer's subscription failed: {error}"[:REMARK_SIZE_MAX]
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        self._require_filters(expression_type)
        return found

    def check(self, subscription: SubscriptionData) -> None:
        """Refuse a subscription that cannot be served. FilterError: its filter is none."""
        self._require_filters(subscription.expression_type)
        if not _is_tag_type(subscription.expression_type):
            self.filters.get(subscription.sub_string)

    def _require_filters(self, expression_type: str | None) -> None:
        """Refuse filters over properties where they are switched off, and unknown kinds."""
        allowed = self.settings.current.property_filter and expression_type == SQL92
        if not allowed and not _is_tag_type(expression_type):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )

    def _selection(self, expression_type: str | None, text: str) -> Selection:
        if _is_tag_type(expression_type):
            return Selection(tags=tag_codes(text))
        if expression_type == SQL92:
            return Selection(wanted=self.filters.get(text))
        return Selection()

    def _registered_selection(self, request: Selecting) -> Selection:
        subscription = _registered(self.clients, self.groups, request)
        if _is_tag_type(subscription.expression_type):
            return Selection(tags=_codes(subscription))
        try:
            found = self._selection(subscription.expression_type, subscription.sub_string)
        except FilterError:
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            ) from None
        self._require_filters(subscription.expression_type)
        return found


def _is_tag_type(expression_type: str | None) -> bool:
    return expression_type in (None, "", TAG)


def _registered(
    clients: ClientRegistry, groups: GroupService, request: Selecting
) -> SubscriptionData:
    group = clients.consumers(request.group)
    if group is None:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's group info not exist\n{rules.FAQ}",
        )
    settings = groups.get(request.group)
    if (
        group.message_model is MessageModel.BROADCASTING
        and settings is not None
        and not settings.consume_broadcast_enable
    ):
        raise rules.forbidden(
            f"the consumer group[{request.group}] can not consume by broadcast way"
        )
    subscription = group.subscriptions.get(request.topic)
    if subscription is None:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's subscription not exist\n{rules.FAQ}",
        )
    if subscription.sub_version < request.sub_version:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
        )
    return subscription


def _codes(subscription: SubscriptionData) -> frozenset[int] | None:
    if subscription.sub_string in ("", ALL):
        return None
    # The codes that the client sent are used, not its text: it filters by what it meant.
    if subscription.code_set:
        return subscription.code_set
    try:
        return tag_codes(subscription.sub_string)
    except ProtocolError:
        return frozenset()
