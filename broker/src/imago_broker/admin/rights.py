"""What each admin route needs a right to, as its row in the table of routes says.

What a request code of RocketMQ does as well needs the same here: both are made of the same needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from imago_broker.admin.errors import AdminError
from imago_broker.admin.message_ids import by_id
from imago_broker.model.access.access import (
    CLUSTER_NAME,
    READ,
    RULE,
    RUN,
    SHOW,
    AccessKind,
    Need,
    Operation,
)
from imago_broker.processors.rocketmq.needs import (
    needs_to_read,
    needs_to_reset,
    of_group,
    of_topic,
    to_set,
)
from imago_broker.service.puts.copies import read_copy

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices

RouteRight = Callable[["AdminServices", "web.Request"], Iterable[Need]]

_DELETE: Final = (Operation.DELETE,)
_ALTER: Final = (Operation.ALTER,)


def open_to_all(_: AdminServices, __: web.Request) -> Iterable[Need]:
    """Need nothing: probes and scrapers have no credentials, and nobody has before he logs in."""
    return ()


def any_user(_: AdminServices, __: web.Request) -> Iterable[Need]:
    """Need to be somebody, and no right."""
    return ()


def of_members(_: AdminServices, __: web.Request) -> Iterable[Need]:
    """Need the admin token itself: no user has it."""
    raise AdminError(
        403, "forbidden", "Brokers alone ask for this.", "Ask for what you need of another path."
    )


def _cluster(operations: tuple[Operation, ...]) -> RouteRight:
    need = Need(operations, AccessKind.CLUSTER, CLUSTER_NAME)
    return lambda _, __: (need,)


def _named(kind: AccessKind, parameter: str, operations: tuple[Operation, ...]) -> RouteRight:
    return lambda _, request: (Need(operations, kind, request.match_info[parameter]),)


def _topic(operations: tuple[Operation, ...]) -> RouteRight:
    return lambda _, request: (of_topic(request.match_info["topic"], operations),)


SHOW_CLUSTER: Final = _cluster(SHOW)
SHOW_STATE: Final = _cluster(SHOW)
"""Of what says how things are, which whoever looks for a fault may see where rights of users are
not known any more, too."""
RUN_CLUSTER: Final = _cluster(RUN)
RULE_CLUSTER: Final = _cluster(RULE)
SHOW_TOPIC: Final = _topic(READ)
ALTER_TOPIC: Final = _topic(_ALTER)
DELETE_TOPIC: Final = _topic(_DELETE)
SHOW_GROUP: Final = _named(AccessKind.GROUP, "group", READ)
ALTER_GROUP: Final = _named(AccessKind.GROUP, "group", _ALTER)
DELETE_GROUP: Final = _named(AccessKind.GROUP, "group", _DELETE)
SHOW_PIPELINE: Final = _named(AccessKind.PIPELINE, "name", READ)
ALTER_PIPELINE: Final = _named(AccessKind.PIPELINE, "name", _ALTER)


def put_topic(services: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to create a topic, or to alter one that is there."""
    name = request.match_info["topic"]
    return (of_topic(name, to_set(known=services.topics.get(name) is not None)),)


def put_group(services: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to create a group, or to alter one that is there."""
    name = request.match_info["group"]
    return (of_group(name, to_set(known=services.groups.get(name) is not None)),)


def reset_progress(_: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need what it needs to have the group go on elsewhere in the topic of the path."""
    return needs_to_reset(request.match_info["topic"], request.match_info["group"])


def see_waiting(_: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to read the topic in which what waits will be; to run the cluster, to see all of it."""
    topic = request.query.get("topic", "")
    if topic and "id" not in request.query:
        return needs_to_read(topic)
    return (Need(RUN, AccessKind.CLUSTER, CLUSTER_NAME),)


def see_history(_: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to see the topic or the group, as its own page does; the cluster, to see all of it."""
    if topic := request.query.get("topic"):
        return (of_topic(topic, READ),)
    if group := request.query.get("group"):
        return (Need(READ, AccessKind.GROUP, group),)
    return (Need(SHOW, AccessKind.CLUSTER, CLUSTER_NAME),)


def find_messages(services: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to read the topic: the one that is named, or that the message of an id is in.

    A message that is not here needs nothing here: whoever has it asks, and topics that the caller
    may not read are not searched.
    """
    topic = request.query.get("topic", "")
    if "id" in request.query:
        records = by_id(services, request.query["id"])
        topic = read_copy(records[0]).topic if records else topic
        if not topic:
            return ()
    return needs_to_read(topic)
