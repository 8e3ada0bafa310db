"""What a type checker says of handlers: mypy reads this module as strictly as a caller's may.

An ignored error that is none fails the check, as an error that is not ignored does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_client import Client, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client import PushConsumer, ReceivedMessage


async def of_a_list(messages: list[ReceivedMessage]) -> None:
    """The type that the reference names."""
    for message in messages:
        assert isinstance(message.body, bytes)


async def of_a_sequence(messages: Sequence[ReceivedMessage]) -> None:
    """What takes more takes a list."""
    assert messages[0].body


async def of_one(message: ReceivedMessage) -> None:
    """A mistake that is made: handlers get all messages of a call."""
    assert message.body


def plain(messages: list[ReceivedMessage]) -> None:
    """Another one: nobody can await it."""
    assert messages


async def test_handlers_of_lists_are_taken_and_mistakes_are_seen() -> None:
    async with Client("127.0.0.1:9") as client:
        made: list[PushConsumer] = [
            client.push_consumer("a", ["orders"], of_a_list),
            client.push_consumer("b", ["orders"], of_a_sequence),
            client.push_consumer("c", ["orders"], of_one),  # type: ignore[arg-type]
        ]
        with pytest.raises(UsageError, match="is not an `async def`"):
            client.push_consumer("d", ["orders"], plain)  # type: ignore[arg-type]
    assert len({*made}) == 3
