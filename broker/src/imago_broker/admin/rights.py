"""What each admin route needs a right to, as its row in the table of routes says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from imago_broker.admin.errors import AdminError
from imago_broker.model.access import (
    CLUSTER_NAME,
    READ,
    RULE,
    RUN,
    SHOW,
    AccessKind,
    Need,
    Operation,
)
from imago_broker.model.names import WITHHELD_TOPICS
from imago_broker.service.copies import read_copy

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices

RouteRight = Callable[["AdminServices", "web.Request"], Iterable[Need]]

_DELETE: Final = (Operation.DELETE,)
_CREATE: Final = (Operation.CREATE,)
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


SHOW_CLUSTER: Final = _cluster(SHOW)
SHOW_STATE: Final = _cluster(SHOW)
"""Of what says how things are, which whoever looks for a fault may see where rights of users are
not known any more, too."""
RUN_CLUSTER: Final = _cluster(RUN)
RULE_CLUSTER: Final = _cluster(RULE)
SHOW_TOPIC: Final = _named(AccessKind.TOPIC, "topic", READ)
ALTER_TOPIC: Final = _named(AccessKind.TOPIC, "topic", _ALTER)
DELETE_TOPIC: Final = _named(AccessKind.TOPIC, "topic", _DELETE)
SHOW_GROUP: Final = _named(AccessKind.GROUP, "group", READ)
ALTER_GROUP: Final = _named(AccessKind.GROUP, "group", _ALTER)
DELETE_GROUP: Final = _named(AccessKind.GROUP, "group", _DELETE)
SHOW_PIPELINE: Final = _named(AccessKind.PIPELINE, "name", READ)
ALTER_PIPELINE: Final = _named(AccessKind.PIPELINE, "name", _ALTER)


def put_topic(services: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to create a topic where there is none, else to alter it."""
    name = request.match_info["topic"]
    known = services.topics.get(name) is not None
    return (Need(_ALTER if known else _CREATE, AccessKind.TOPIC, name),)


def put_group(services: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to create a group where there is none, else to alter it."""
    name = request.match_info["group"]
    known = services.groups.get(name) is not None
    return (Need(_ALTER if known else _CREATE, AccessKind.GROUP, name),)


def find_messages(services: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to read the topic: the one that is named, or that the message of an id is in."""
    topic = request.query.get("topic", "")
    if "id" in request.query:
        from imago_broker.admin.messages import by_id  # noqa: PLC0415  it needs this module's peers

        records = by_id(services, request.query["id"])
        topic = read_copy(records[0]).topic if records else topic
    if topic in WITHHELD_TOPICS:
        return (Need(RUN, AccessKind.CLUSTER, CLUSTER_NAME),)
    return (Need(READ, AccessKind.TOPIC, topic),)
