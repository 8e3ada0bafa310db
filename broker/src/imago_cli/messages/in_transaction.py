"""What `imago produce --transaction` sends: nobody reads it before all of it is stored."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from imago_cli.exits import CommandError
from imago_cli.output import counted, say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from imago_client import Client, Decision, Message, ReceivedMessage
    from imago_client.config import ProducerConfig
    from imago_client.rocketmq.transactions import OpenTransaction

GROUP: Final = "imago-produce"
"""Of producers; brokers ask it about messages of a command that was killed, and give them up."""
HALVES_MAX: Final = 10_000
"""Each is open until the last one is stored: brokers bound how many there are."""


@asynccontextmanager
async def all_or_none(
    client: Client, config: ProducerConfig
) -> AsyncIterator[Callable[[Message], Awaitable[object]]]:
    """Give the way to send; at the block's end all is committed, at an error all rolled back.

    Each message has an end of its own: who is killed between the ends leaves a part committed, and
    brokers give up the others, as nobody can say any more how it was decided.
    """
    opened: list[OpenTransaction] = []

    async with client.transaction_producer(GROUP, _undecided, config) as producer:

        async def send(message: Message) -> None:
            if len(opened) >= HALVES_MAX:
                raise CommandError(
                    f"one transaction has {HALVES_MAX:,} messages at most",
                    cure="send fewer at once",
                )
            opened.append(await producer.begin(message))

        try:
            yield send
        except BaseException:
            for one in opened:
                await one.rollback()
            say(f"{counted(len(opened), 'message')} rolled back: nobody reads them")
            raise
        for done, one in enumerate(opened):
            try:
                await one.commit()
            except Exception:
                say(f"{done:,} of {counted(len(opened), 'message')} committed")
                raise


async def _undecided(_: ReceivedMessage) -> Decision:
    from imago_client import Decision

    return Decision.UNKNOWN
