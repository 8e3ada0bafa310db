"""Where partitions begin and end, asked of each: for who may read a topic, and not all statistics.

MetaQ's statistics tell of all topics at once. A broker with rules gives them to who may see the
cluster, and answers everybody else about the partitions that he may read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from imago_client.errors import AnswerError
from imago_client.metaq.values import MetaqError, Partition, checked_word, result_text
from imago_wire.text.commands import OFFSET_END, Offset
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from imago_client.metaq.connection import Asking
    from imago_wire.text.commands import Response

    Bounds = dict[Partition, tuple[int, int]]

AT_ONCE: Final = 64
"""Partitions that are asked together; the last of all is among them, or before so many unused."""


async def bounds(asking: Asking, server: str, topic: str, group: str) -> Bounds:
    """Return the partitions that hold messages. MetaqError: they may not be read either."""
    ask = partial(asking.ask, server, timeout_s=asking.config.request_timeout_s)
    found: Bounds = {}
    for numbers in _batches(found):
        lows = await asking.together(ask(_asks(topic, group, each, 0)) for each in numbers)
        used = _used(server, numbers, lows)
        ends = await asking.together(ask(_asks(topic, group, each, OFFSET_END)) for each in used)
        _note(found, server, topic, used, ends)
    return found


def _batches(found: Bounds) -> Iterable[range]:
    """Yield the numbers to ask for, until none of them is of a partition with messages."""
    first, known = 0, -1
    while len(found) > known:
        known = len(found)
        yield range(first, first + AT_ONCE)
        first += AT_ONCE


def _asks(topic: str, group: str, number: int, offset: int) -> Callable[[int], Offset]:
    checked_word("topic", topic)
    checked_word("group", group)
    return lambda opaque: Offset(topic, group, number, offset, opaque)


def _used(server: str, numbers: Iterable[int], answers: Sequence[Response]) -> dict[int, int]:
    """Return where each partition begins that holds messages, or did."""
    lows = {}
    for number, answer in zip(numbers, answers, strict=True):
        try:
            lows[number] = _number(server, answer)
        except MetaqError as error:
            if error.status != Status.NOT_FOUND:
                raise
    return lows


def _number(server: str, answer: Response) -> int:
    text = result_text(server, answer)
    if not text.isdecimal():
        raise AnswerError(server, f"offset answered {text[:80]!r}")
    return int(text)


def _note(
    found: Bounds, server: str, topic: str, used: dict[int, int], ends: Sequence[Response]
) -> None:
    for (number, low), answer in zip(used.items(), ends, strict=True):
        found[Partition(topic, server, number)] = (low, _number(server, answer))
