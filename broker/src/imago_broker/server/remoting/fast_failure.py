"""Fast failure: sends that have waited on their connection for too long are answered as busy.

A broker appends what it has read before it reads on, so sends wait only while their connection
does (`WaitReason`). Whoever asked for it hears then that a send was not done, rather than to have
it done so late that the producer has given it up and sent it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.service.groups.channel import Reply
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.scanning.items import FRAME, SEND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.groups.channel import Channel
    from imago_wire.remoting.command import RemotingCommand
    from imago_wire.remoting.scanning.items import Item

SENDS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)
"""What RocketMQ keeps in the queue that it clears so."""
_REMARK: Final = (
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms, "
    "size of queue: {}"
)


def fail_sends(channel: Channel, items: Sequence[Item], waited_ms: int) -> Sequence[Item]:
    """Answer the sends that have waited for so long as busy; return what else there is."""
    sends: list[RemotingCommand] = []
    others: list[Item] = []
    for item in items:
        if item.kind == SEND:
            sends.append(decode_raw_header(item.raw_header, item.body))
        elif item.kind == FRAME and not item.command.is_response and item.command.code in SENDS:
            sends.append(item.command)
        else:
            others.append(item)
    reply = Reply(ResponseCode.SYSTEM_BUSY, _REMARK.format(waited_ms, len(sends)))
    for command in sends:
        if not command.is_oneway:
            channel.reply(command, reply)
    return others
