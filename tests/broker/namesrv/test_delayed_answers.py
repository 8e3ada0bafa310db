"""Answers that wait for the registry come, whatever the registry does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from imago_broker.namesrv.delayed_answers import Later
from imago_broker.ports import CoordinatorUnavailableError
from imago_broker.processors.rocketmq.exchange import Exchange, Reply
from imago_wire.remoting.command import RemotingCommand


class Answers:
    """A channel that keeps what it is told to answer."""

    peer = "10.0.0.1:1"

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def reply(self, _: RemotingCommand, reply: Reply) -> None:
        self.replies.append(reply)


async def outcome(error: Exception | None) -> None:
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (None, Reply(5)),
        (CoordinatorUnavailableError("no answer"), Reply(1, "no answer")),
        (RuntimeError("secret"), Reply(1, "internal error, see the log")),
    ],
)
async def test_every_request_is_answered(error: Exception | None, reply: Reply) -> None:
    channel: Any = Answers()
    later = Later()
    later.answer(Exchange(channel, RemotingCommand(code=1)), outcome(error), lambda: Reply(5))
    later.run(outcome(error))
    async with asyncio.timeout(50):
        while not channel.replies:  # noqa: ASYNC110  nothing tells when it happens
            await asyncio.sleep(0)
    assert channel.replies == [reply]
    await later.stop()
