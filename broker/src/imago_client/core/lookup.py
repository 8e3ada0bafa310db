"""Operations on the name service: routes and the cluster's members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_client.checks import check_text
from imago_client.core.effects import Operation, Request, Wait, ask
from imago_client.core.routing import TopicRoute, topic_route
from imago_client.core.state import RouteLookup
from imago_client.errors import (
    AnswerError,
    BrokerError,
    ClientError,
    NoRouteError,
    TopicAwayError,
    TryAgainError,
)
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.route import ClusterInfo, TopicList, TopicRouteData
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.fields import Header, header
from imago_wire.remoting.headers.namesrv import GetRouteInfoRequestHeader
from imago_wire.system_topics import is_system

if TYPE_CHECKING:
    from imago_client.core.state import ClientState
    from imago_wire.remoting.command import RemotingCommand


@header
class RouteRequestHeader(GetRouteInfoRequestHeader):
    """A question for a route that Imago's name service answers with all queues placed.

    Also those of shards that have no live broker now. RocketMQ's own passes over the field.
    """

    imago_placed: bool = True


@header
class PlacedRequestHeader(Header):
    """A question that Imago's name service answers for shards without a live broker, too."""

    imago_placed: bool = True


TEMPLATE_TOPIC: Final = "TBW102"
"""Its route shows which brokers create topics on the first send."""


def ask_name_service(
    state: ClientState, code: int, wanted: Header | None = None, *accepted: int
) -> Operation[RemotingCommand]:
    """Ask the server in use, then the others; raise what the last one raised."""
    timeout_s = state.config.request_timeout_s
    last_error: TryAgainError | None = None
    for address in state.name_servers():
        try:
            answer = yield from ask(Request(address, code, wanted, timeout_s=timeout_s))
        except TryAgainError as error:
            last_error = error
            continue
        state.prefer_name_server(address)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise AnswerError(address, "does not know requests to a name service")
        if answer.code != 0 and answer.code not in accepted:
            raise BrokerError(address, answer.code, answer.remark or "")
        return answer
    raise last_error or AssertionError("a client has at least one name-service address")


def find_route(state: ClientState, topic: str) -> Operation[TopicRoute]:
    """Return the topic's route, from memory while it is fresh.

    While no name server answers, the last known route serves on. A route is asked for once at a
    time: whoever wants the same one meanwhile waits for that answer.
    """
    while True:
        if cached := state.cached_route(topic):
            return cached
        other = state.lookups.get(topic)
        if other is None:
            return (yield from _look_up(state, topic))
        yield Wait(other.ended)
        if other.route is not None:
            return other.route
        if other.error is not None:
            raise other.error.with_traceback(None)  # else each who waited would lengthen it


def _look_up(state: ClientState, topic: str) -> Operation[TopicRoute]:
    lookup = state.lookups[topic] = RouteLookup()
    try:
        lookup.route = route = yield from _ask_route(state, topic)
    except ClientError as error:
        lookup.error = error
        raise
    else:
        return route
    finally:
        del state.lookups[topic]
        lookup.ended.open()


def _ask_route(state: ClientState, topic: str) -> Operation[TopicRoute]:
    try:
        answer = yield from ask_name_service(
            state,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RouteRequestHeader(topic=topic, accept_standard_json_only=True),
            ResponseCode.TOPIC_NOT_EXIST,
        )
    except TryAgainError:
        if stale := state.stale_route(topic):
            return stale
        raise
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        raise NoRouteError(topic) if state.stale_route(topic) is None else TopicAwayError(topic)
    route = topic_route(topic, TopicRouteData.decode(answer.body))
    state.keep_route(route)
    return route


def find_named_route(state: ClientState, topic: str) -> Operation[TopicRoute]:
    """Return the route of a topic that a person has named: the error names the nearest there is."""
    check_text("topic", topic)
    try:
        return (yield from find_route(state, topic))
    except NoRouteError as error:
        raise (yield from _with_nearest(state, error)) from None


def _with_nearest(state: ClientState, error: NoRouteError) -> Operation[NoRouteError]:
    """Return the error with the name that was probably meant, where the names may be seen."""
    if type(error) is not NoRouteError:
        return error
    names = state.listed_topics()
    if names is None:
        try:
            answer = yield from ask_name_service(
                state, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            )
            names = TopicList.decode(answer.body).topic_list
        except (ClientError, ProtocolError):
            names = []
        state.keep_listed_topics(names)
    wanted = [name for name in names if not (name.startswith("%") or is_system(name, ()))]
    import difflib

    near = difflib.get_close_matches(error.topic, wanted, n=1)
    return NoRouteError(error.topic, near=near[0]) if near else error


def find_publish_route(state: ClientState, topic: str, queues_max: int) -> Operation[TopicRoute]:
    """Return where a topic can be sent to; of an unknown one, where its first send creates it."""
    try:
        return (yield from find_route(state, topic))
    except NoRouteError as error:
        try:
            template = yield from find_route(state, TEMPLATE_TOPIC)
        except NoRouteError:
            raise (yield from _with_nearest(state, error)) from None
    return route_like_template(topic, template, queues_max)


def all_topics(state: ClientState) -> Operation[list[str]]:
    """Return the names of all topics, the system's own too, sorted."""
    answer = yield from ask_name_service(
        state, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, PlacedRequestHeader()
    )
    return sorted(TopicList.decode(answer.body).topic_list)


def cluster_info(state: ClientState) -> Operation[ClusterInfo]:
    """Return all live brokers by cluster and shard, and the shards that nobody leads."""
    answer = yield from ask_name_service(
        state, RequestCode.GET_BROKER_CLUSTER_INFO, PlacedRequestHeader()
    )
    return ClusterInfo.decode(answer.body)


def route_like_template(topic: str, template: TopicRoute, queues_max: int) -> TopicRoute:
    """Return the route that `topic` will have once its first send created it."""
    return TopicRoute(
        topic,
        (),
        tuple(
            type(queue)(topic, queue.shard, queue.queue_id)
            for queue in template.write_queues
            if queue.queue_id < queues_max
        ),
        template.addresses,
    )
