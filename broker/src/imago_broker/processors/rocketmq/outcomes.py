"""How a put ended, in RocketMQ's codes and words."""

from __future__ import annotations

from imago_broker.processors.rocketmq.exchange import Reply
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.remoting.codes import ResponseCode

_UNAVAILABLE = (
    "service not available now. It may be caused by one of the following reasons: {reason}, "
    "messages are put to the slave, message store has been shut down, etc."
)

STORED = {
    PutStatus.OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_UNAVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The message is in the log; the code says what was not waited for any longer."""

REFUSED = {
    PutStatus.DISK_FULL: Reply(
        ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE.format(reason="the broker's disk is full")
    ),
    PutStatus.PAIR_AWAY: Reply(
        ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE.format(reason="its slave is disconnected")
    ),
    PutStatus.NOT_WRITABLE: Reply(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        _UNAVAILABLE.format(reason="this broker is not the master"),
    ),
    PutStatus.TOO_FEW_IN_SYNC: Reply(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"),
    PutStatus.BUSY: Reply(
        ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
    ),
    PutStatus.TOO_LARGE: Reply(
        ResponseCode.MESSAGE_ILLEGAL, "the message is illegal, it is larger than a file of the log"
    ),
    PutStatus.STOPPING: Reply(
        ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE.format(reason="the broker is stopping")
    ),
}
"""The message is not in the log."""

STATUS_NAMES = {
    PutStatus.OK: "PUT_OK",
    PutStatus.FLUSH_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    PutStatus.SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    PutStatus.SLAVE_UNAVAILABLE: "SLAVE_NOT_AVAILABLE",
    PutStatus.DISK_FULL: "SERVICE_NOT_AVAILABLE",
    PutStatus.PAIR_AWAY: "SERVICE_NOT_AVAILABLE",
    PutStatus.NOT_WRITABLE: "SERVICE_NOT_AVAILABLE",
    PutStatus.TOO_FEW_IN_SYNC: "IN_SYNC_REPLICAS_NOT_ENOUGH",
    PutStatus.BUSY: "OS_PAGE_CACHE_BUSY",
    PutStatus.TOO_LARGE: "MESSAGE_ILLEGAL",
    PutStatus.STOPPING: "SERVICE_NOT_AVAILABLE",
}
"""RocketMQ's names, which some answers carry as their text."""


def illegal_message(body_bytes_max: int) -> Reply:
    """Return the answer to a message that is too large or whose parts do not fit together."""
    return Reply(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. msg body length "
        f"limit {body_bytes_max}B, msg properties length limit 32KB.",
    )
