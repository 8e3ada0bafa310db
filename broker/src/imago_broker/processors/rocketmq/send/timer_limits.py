"""Messages that name a time of their own: which times a broker takes, in RocketMQ's words."""

from __future__ import annotations

from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.service.delays.timers.timer_properties import asked_ms, is_timed
from imago_wire.remoting.codes import ResponseCode


def checked_due_ms(properties: bytes, now_ms: int, delay_ms_max: int) -> int:
    """Return when a timed message is due; 0: it is due now. RequestError: it cannot wait so long.

    `delay_ms_max`: 0 allows none at all.
    """
    if not is_timed(properties):
        return 0
    if not delay_ms_max:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    due = asked_ms(properties, now_ms)
    if due is None or due - now_ms > delay_ms_max:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{delay_ms_max}ms; or if set del msg, the delay time should be bigger than the "
            "current time",
        )
    return due if due > now_ms else 0
