"""When a message wants to be delivered that names a time of its own, in RocketMQ's properties."""

from __future__ import annotations

import re
from typing import Final

from imago_wire.record_format import properties as props

_UNITS: Final = ((b"TIMER_DELAY_SEC", 1000), (b"TIMER_DELAY_MS", 1))
_DELIVER: Final = b"TIMER_DELIVER_MS"
_OUT: Final = b"TIMER_OUT_MS"
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}\Z")


def may_wait(properties: bytes) -> bool:
    """Whether a message may ask for a level or a time, as far as a look tells that costs little."""
    # `in` looks at bytes as a number first, and so raises and drops an error each time.
    return properties.find(b"DELAY") >= 0 or properties.find(b"TIMER_") >= 0


def is_timed(properties: bytes) -> bool:
    """Whether a message names a time of its own; one that was a timer already does not."""
    if b"TIMER_" not in properties or props.find(properties, _OUT):
        return False
    return any(props.find(properties, name) for name in (_DELIVER, *(name for name, _ in _UNITS)))


def asked_ms(properties: bytes, now_ms: int) -> int | None:
    """Return the time that a timed message names; None: it is no time."""
    for name, unit_ms in _UNITS:
        text = props.find(properties, name)
        if text:
            return now_ms + int(text) * unit_ms if _NUMBER.match(text) else None
    text = props.find(properties, _DELIVER) or b""
    return int(text) if _NUMBER.match(text) else None
