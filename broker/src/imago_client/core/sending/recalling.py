"""Taking back a message that is not due yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.checks import check_text
from imago_client.core.effects import Request, ask_ok
from imago_client.core.failover import through_failover
from imago_client.core.lookup import find_publish_route
from imago_client.errors import UsageError
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.headers.send import RecallMessageRequestHeader
from imago_wire.remoting.texts.handles import parse_recall_handle

if TYPE_CHECKING:
    from imago_client.config import ProducerConfig
    from imago_client.core.effects import Operation
    from imago_client.core.state import ClientState


def recall(state: ClientState, config: ProducerConfig, handle: str | None) -> Operation[str]:
    """Have the message of a handle never delivered; return its id.

    It is asked again while a master is being sought: taking back twice is taking back.
    BrokerError: it is due, or the broker does not take messages back.
    """
    if handle is None:
        raise UsageError(
            "handle: None, the message does not wait; only the result of one with delay_ms or"
            " deliver_at_ms ahead has a recall_handle"
        )
    check_text("handle", handle)
    try:
        named = parse_recall_handle(handle)
    except ProtocolError as error:
        raise UsageError(f"handle: {error}; pass a SendResult's recall_handle") from None
    header = RecallMessageRequestHeader(
        producer_group=config.group, topic=named.topic, recall_handle=handle
    )

    def attempt() -> Operation[None]:
        route = yield from find_publish_route(state, named.topic, config.queues_by_default)
        address = route.master(named.broker_name)
        yield from ask_ok(
            Request(address, RequestCode.RECALL_MESSAGE, header, timeout_s=config.send_timeout_s)
        )

    yield from through_failover(state, named.topic, attempt)
    return named.message_id
