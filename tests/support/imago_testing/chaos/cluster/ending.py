"""What a member shows that leads when all is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_testing.chaos.connections import ConnectionLostError
from imago_testing.chaos.consumers import read_light, read_whole
from imago_testing.chaos.history import Ending, Hole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from imago_testing.chaos.cluster.members import Member
    from imago_testing.chaos.credentials import Address
    from imago_testing.chaos.history import Queue

_OK = 200


async def read_ending(member: Member, queues: Sequence[Queue], light: Iterable[str]) -> Ending:
    """Read every queue of a member that leads, through both protocols; `light`: names of others."""

    async def metaq() -> Address:
        return member.metaq

    async def rocketmq() -> Address:
        return member.rocketmq

    messages = await read_whole(metaq, rocketmq, queues)
    found = await read_light(rocketmq, light)
    code, status = await asyncio.to_thread(member.ask, "/admin/v1/status")
    if code != _OK:
        raise ConnectionLostError(f"{member.name} answers {code} to a question for its status")
    holes = [
        Hole(each["from"], each["to"], each["file"], each["position"]) for each in status["damaged"]
    ]
    return Ending(member.name, messages, status["logStart"], holes, found)
