"""What is sent back of dead letters: none is passed over without a word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.connect import check_takes_back
from imago_cli.exits import CommandError
from imago_cli.groups.dlq import Letters, _read, _send_back
from imago_cli.groups.hold import Hold
from imago_cli.messages.pace import Pace
from imago_client import MessageQueue
from imago_client.errors import BodyError

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACE = MessageQueue("%DLQ%g", "shard-0", 0)
LETTERS = [Letters(PLACE, 0, 0, 3, 0)]


def client(committed: dict[int, int], **more: Any) -> Any:
    """A cluster in which offset 1 cannot be read now, unless said otherwise."""

    def pull(_: MessageQueue, offset: int) -> Any:
        found = [] if offset == 1 else [SimpleNamespace(offset=offset)]
        return SimpleNamespace(
            messages=lambda: iter(found), next_offset=offset + len(found), remark="it heals"
        )

    def commit(queue: MessageQueue, offset: int) -> None:
        committed[queue.queue_id] = offset

    reader = SimpleNamespace(pull=pull, commit=commit, committed=lambda _: more.get("read"))
    admin = SimpleNamespace(
        topics=lambda: more.get("topics", ()),
        describe_group=lambda _: SimpleNamespace(subscriptions=more.get("subscriptions", {})),
        topic_bounds=lambda _: [SimpleNamespace(queue=PLACE)],
    )
    producer = SimpleNamespace(send=lambda _: None)
    return SimpleNamespace(pull_consumer=lambda _: reader, producer=lambda: producer, admin=admin)


def test_what_cannot_be_read_now_ends_the_run_and_is_not_passed_over() -> None:
    read: Iterator[Any] = _read(client({}), LETTERS, everything=False)
    assert next(read).offset == 0
    with pytest.raises(CommandError, match=r"shard-0/0 offset 1 cannot be read now: it heals"):
        next(read)


def test_a_body_that_cannot_be_sent_as_it_was_is_said_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    committed: dict[int, int] = {}
    error = BodyError(PLACE, 2, "AB", "is no zlib", is_too_large=False)
    broken: Any = SimpleNamespace(queue=PLACE, offset=2, size=9, error=error)
    pace = Pace("sent back", 1)
    assert _send_back(client(committed), "g", LETTERS, [broken], pace) == 1
    assert (pace.count, committed) == (0, {0: 3})
    assert (
        "not sent: message AB at offset 2 of %DLQ%g/shard-0/0: is no zlib"
        in capsys.readouterr().err
    )


def test_only_who_reads_what_goes_back_is_sent_to() -> None:
    there: dict[str, Any] = {"topics": ["%RETRY%g"]}
    check_takes_back(client({}, **there, subscriptions={"%RETRY%g": "*"}), "g")
    check_takes_back(client({}, **there, read=0), "g")
    with pytest.raises(CommandError, match="nobody is seen to read"):
        check_takes_back(client({}, **there), "g")
    with pytest.raises(CommandError, match="has had no member yet"):
        check_takes_back(client({}), "g")


def test_a_second_replay_at_once_is_kept_out() -> None:
    held: dict[MessageQueue, str] = {}

    def reader(name: str) -> Any:
        def lock(queues: Any) -> set[MessageQueue]:
            return {one for one in queues if held.setdefault(one, name) == name}

        def unlock(queues: Any) -> None:
            for one in queues:
                del held[one]

        return SimpleNamespace(lock=lock, unlock=unlock)

    with Hold(reader("a")) as first:
        first.take([PLACE])
        with Hold(reader("b")) as second, pytest.raises(CommandError, match="another replay works"):
            second.take([PLACE])
    assert held == {}


def test_a_replay_that_lost_what_it_held_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    locks = iter([{PLACE}, {PLACE}, set[MessageQueue]()])
    monkeypatch.setattr("imago_cli.groups.hold.RENEW_S", 0.0)
    reader: Any = SimpleNamespace(lock=lambda _: next(locks), unlock=lambda _: None)
    with Hold(reader) as hold:
        hold.take([PLACE])
        kept = hold.kept(iter(range(5)), None)
        assert next(kept) == 0
        with pytest.raises(CommandError, match="another replay works"):
            next(kept)
