"""Which messages a pull wants: the tags of its subscription."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.processors.rocketmq.pull_request import FLAG_SUBSCRIPTION, PullRequest
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.client import MessageModel
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.subscriptions import ALL, TAG, tag_subscription

if TYPE_CHECKING:
    from imago_broker.service.clients import ClientRegistry
    from imago_broker.service.groups import GroupService
    from imago_wire.remoting.bodies.client import SubscriptionData


@lru_cache(maxsize=4096)
def tag_codes(expression: str) -> frozenset[int] | None:
    """Return the hashes of the tags in `a || b`; None wants everything (empty or `*`).

    ProtocolError for an expression that names no tag.
    """
    subscription = tag_subscription("", expression.strip(), 0)
    return None if subscription.sub_string == ALL else subscription.code_set


def require_tag_type(expression_type: str | None) -> None:
    """Refuse every kind of filter but tags, as a broker with enablePropertyFilter=false does."""
    if expression_type not in (None, "", TAG):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )


def wanted_tags(
    clients: ClientRegistry, groups: GroupService, request: PullRequest
) -> frozenset[int] | None:
    """Return the tag hashes that a pull wants, or None for all; refuse what RocketMQ refuses."""
    if request.sys_flag & FLAG_SUBSCRIPTION:
        require_tag_type(request.expression_type)
        try:
            return tag_codes(request.subscription)
        except ProtocolError:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                "parse the consumer's subscription failed",
            ) from None
    return _codes(_registered(clients, groups, request))


def _registered(
    clients: ClientRegistry, groups: GroupService, request: PullRequest
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
    require_tag_type(subscription.expression_type)
    return subscription


def _codes(subscription: SubscriptionData) -> frozenset[int] | None:
    if subscription.sub_string in ("", ALL):
        return None
    # The codes that the client sent are used, not its text: it filters by what it meant.
    return subscription.code_set or tag_codes(subscription.sub_string)
