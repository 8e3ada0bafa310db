"""Which member of a group reads which queue: members alone know, and are asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.client import ConsumerRunningInfo
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from imago_broker.service.groups.clients import ClientRegistry, ConnectedClient
    from imago_wire.remoting.command import RemotingCommand

WAIT_MS: Final = 500
"""For all members together: somebody looks at a page."""
Readers = dict[tuple[str, int], str]


async def readers_of(clients: ClientRegistry, group: str, broker_name: str) -> Readers | None:
    """Return which member reads each queue of a broker; None: one of them does not tell.

    Those by POP have no queues of their own, and blocking ones answer at their next poll.
    """
    consumers = clients.consumers(group)
    members = list(consumers.members.values()) if consumers else []
    found: Readers = {}
    for member, told in zip(
        members, await asyncio.gather(*(_told(each, group) for each in members)), strict=True
    ):
        if told is None or told.mq_pop_table or not (told.mq_table or told.subscription_set):
            return None
        for queue in told.mq_table:
            if queue.broker_name == broker_name:
                found[queue.topic, queue.queue_id] = member.client_id
    return found


async def _told(member: ConnectedClient, group: str) -> ConsumerRunningInfo | None:
    if member.version < Version.V3_1_8_SNAPSHOT:
        return None
    answer: asyncio.Future[RemotingCommand | None] = asyncio.get_running_loop().create_future()

    def answered(response: RemotingCommand | None) -> None:
        if not answer.done():
            answer.set_result(response)

    ask = {"consumerGroup": group, "clientId": member.client_id, "jstackEnable": "false"}
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    member.channel.call(code, ask, b"", WAIT_MS, answered)
    response = await answer
    if response is None or response.code != ResponseCode.SUCCESS:
        return None
    try:
        return ConsumerRunningInfo.decode(response.body)
    except ProtocolError:
        return None
