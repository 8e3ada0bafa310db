"""`imago produce --transaction`: all of it, or nothing."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.exits import CommandError
from imago_cli.messages import in_transaction
from imago_cli.messages.in_transaction import all_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def client(ended: list[str], *, fails_at: int = -1) -> Any:
    """One whose producer notes what becomes of each message; a commit may fail."""

    async def begin(message: str) -> Any:
        async def commit() -> None:
            if len(ended) == fails_at:
                raise OSError("gone")
            ended.append(f"{message} committed")

        async def rollback() -> None:
            ended.append(f"{message} rolled back")

        return SimpleNamespace(commit=commit, rollback=rollback)

    @asynccontextmanager
    async def producer(*_: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(begin=begin)

    return SimpleNamespace(transaction_producer=producer)


async def send(messages: str, ended: list[str], *, fails_at: int = -1) -> None:
    config: Any = None
    async with all_or_none(client(ended, fails_at=fails_at), config) as hand_over:
        for message in messages:
            if message == "!":
                raise CommandError("line 2 is no record")
            one: Any = message
            await hand_over(one)
        assert ended == []


async def test_all_are_committed_once_all_are_stored() -> None:
    ended: list[str] = []
    await send("ab", ended)
    assert ended == ["a committed", "b committed"]


async def test_an_error_rolls_all_back(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[str] = []
    with pytest.raises(CommandError, match="line 2"):
        await send("a!", ended)
    assert ended == ["a rolled back"]
    assert "1 message rolled back: nobody reads them" in capsys.readouterr().err


async def test_a_commit_that_fails_says_how_many_are_committed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(OSError, match="gone"):
        await send("abc", [], fails_at=1)
    assert "1 of 3 messages committed" in capsys.readouterr().err


async def test_a_transaction_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_transaction, "HALVES_MAX", 2)
    await send("ab", [])
    ended: list[str] = []
    with pytest.raises(CommandError, match="one transaction has 2 messages at most"):
        await send("abc", ended)
    assert ended == ["a rolled back", "b rolled back"]
