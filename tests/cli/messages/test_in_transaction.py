"""`imago produce --transaction`: all of it, or nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.exits import CommandError
from imago_cli.messages import in_transaction
from imago_cli.messages.in_transaction import all_or_none
from imago_client import ConnectionLostError, Message, MessageQueue
from imago_wire.remoting import staged

if TYPE_CHECKING:
    from collections.abc import Iterable

QUEUES = [MessageQueue("orders", f"shard-{n // 2}", n % 2) for n in range(6)]


class Producer:
    """Notes what is staged, published and forgotten; may fail at one of these."""

    def __init__(self, fails_at: str = "") -> None:
        self.done: list[Any] = []
        self._fails_at = fails_at

    async def queues(self, _topic: str) -> list[MessageQueue]:
        return QUEUES

    async def stage(self, *where: Any) -> int:
        _batch, _attempt, part, queue, messages = where
        return self._note("stage", part, queue, [one.body for one in messages])

    async def publish_staged(self, _batch: Any, _topic: str, parts: Any, *, only: str) -> None:
        (counts,) = parts.values()
        self._note("publish", counts, only)

    async def forget_staged(self, *_: Any, only: str) -> None:
        self._note("forget", only)

    def _note(self, what: str, *how: Any) -> int:
        self.done.append((what, *how))
        if what == self._fails_at:
            raise ConnectionLostError("a:1", "gone")
        return 10


async def send(
    producer: Producer, messages: Iterable[Message | None], away: tuple[str, ...] = ()
) -> None:
    async def missing(_topic: str) -> list[Any]:
        return [SimpleNamespace(shard=name) for name in away]

    admin = SimpleNamespace(missing_shards=missing)
    client: Any = SimpleNamespace(producer=lambda _: producer, admin=admin)
    config: Any = None
    async with all_or_none(client, config, "orders") as hand_over:
        for message in messages:
            if message is None:
                raise CommandError("line 2 is no record")
            await hand_over(message)


def said(*bodies: str, key: str | None = None) -> list[Message]:
    return [Message("orders", body.encode(), ordering_key=key) for body in bodies]


async def test_all_is_published_at_once_on_one_shard() -> None:
    producer = Producer()
    await send(producer, said("a", "b", "c"))
    *stages, published = producer.done
    assert sorted(bodies for *_, bodies in stages) == [[b"a", b"c"], [b"b"]]
    assert [(part, queue) for _, part, queue, _ in stages] == [*enumerate(QUEUES[:2])]
    assert published == ("publish", {"shard-0": 2}, "shard-0")


async def test_a_shard_that_is_away_is_not_chosen() -> None:
    producer = Producer()
    await send(producer, said("a"), away=("shard-0", "shard-1"))
    assert producer.done[-1] == ("publish", {"shard-2": 1}, "shard-2")


async def test_messages_of_a_key_stay_in_order_in_one_queue() -> None:
    producer = Producer()
    await send(producer, said("a", "b", "c", key="k"))
    ((_, part, queue, bodies), _) = producer.done
    assert (part, bodies, queue.shard) == (0, [b"a", b"b", b"c"], "shard-0")


async def test_many_messages_are_staged_in_parts() -> None:
    producer = Producer()
    await send(producer, said(*["x" * 100_000] * 8, key="k"))
    assert [len(one[3]) for one in producer.done[:-1]] == [3, 3, 2]
    assert [one[1] for one in producer.done[:-1]] == [0, 1, 2]


async def test_nothing_publishes_nothing() -> None:
    producer = Producer()
    await send(producer, [])
    assert producer.done == []


async def test_an_error_forgets_all(capsys: pytest.CaptureFixture[str]) -> None:
    producer = Producer()
    with pytest.raises(CommandError, match="line 2"):
        await send(producer, [*said(*["x" * 300_000] * 2, key="k"), None])
    assert [one[0] for one in producer.done] == ["stage", "stage", "forget"]
    assert "2 messages rolled back: nobody reads them\n" in capsys.readouterr().err


async def test_what_cannot_be_forgotten_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="line 2"):
        await send(Producer("forget"), [*said("x" * 300_000), None])
    assert "brokers forget them within a week" in capsys.readouterr().err


async def test_a_master_that_never_answers_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Silent(Producer):
        async def forget_staged(self, *_: Any, **_how: str) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(in_transaction, "FORGET_SECONDS", 0.01)
    with pytest.raises(CommandError, match="line 2"):
        await send(Silent(), [*said("x" * 300_000), None])
    assert "brokers forget them within a week" in capsys.readouterr().err


async def test_a_publication_without_an_answer_is_no_rollback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    producer = Producer("publish")
    with pytest.raises(ConnectionLostError):
        await send(producer, said("a"))
    assert [one[0] for one in producer.done] == ["stage", "publish"]
    assert "of 1 message readers see all, or none: it is not known" in capsys.readouterr().err


@pytest.mark.parametrize(("limit", "value"), [("ROWS_MAX", 2), ("BYTES_MAX", 25)])
async def test_a_transaction_has_limits(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(staged, limit, value)
    producer = Producer()
    with pytest.raises(CommandError, match="at most"):
        await send(producer, said(*["x" * 300_000] * 3, key="k"))
    assert producer.done[-1] == ("forget", "shard-0")
