"""Files that were damaged while the broker was down: what is whole is served, the rest is told."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos import payload
from imago_testing.chaos.broker import ChaosBroker
from imago_testing.chaos.connections import GROUP, MetaqConnection, RemotingConnection, fixed, tags
from imago_testing.chaos.consumers import read_whole
from imago_testing.chaos.history import Key, Protocol, Queue, Stored
from imago_wire.text.commands import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

pytestmark = pytest.mark.processes

QUEUES = [Queue("damage", 0), Queue("damage", 1)]
MESSAGES = range(100)
"""Numbers of messages, one of each protocol: more than one file of the log."""
MORE_MESSAGES = range(1000, 1004)
FILLER_BYTES = 25_000
IN_THE_BODY = 300
"""Bytes behind the start of a record."""
PLACE = slice(28, 36)
"""Where a record holds its own log offset."""

Whole = dict[tuple[Protocol, Queue], list[Stored]]


@contextmanager
def broker_in(folder: Path) -> Iterator[ChaosBroker]:
    broker = ChaosBroker(folder)
    try:
        broker.start()
        broker.wait()
        broker.put("topics/damage", {"queues": len(QUEUES)})
        broker.put(f"groups/{GROUP}", {})
        yield broker
    finally:
        broker.close()


async def write(
    broker: ChaosBroker, numbers: range, *, through: Collection[Protocol] = tuple(Protocol)
) -> None:
    """Send a message through each protocol for each number; all are acknowledged."""
    rng = random.Random(numbers.start)
    metaq = await MetaqConnection.open(fixed(broker.metaq_port))
    remoting = await RemotingConnection.open(fixed(broker.rocketmq_port))
    try:
        for number in numbers:
            queue = QUEUES[number % len(QUEUES)]
            if Protocol.METAQ in through:
                answer = await metaq.put(queue, payload.encode(Key(0, number), rng), tags(1))
                assert isinstance(answer, Result)
                assert answer.code == 200
            body = payload.encode(Key(1, number), rng, filler_bytes=FILLER_BYTES)
            assert (await remoting.put(queue, [body])).code == 0
    finally:
        await metaq.close()
        await remoting.close()


async def read(broker: ChaosBroker) -> Whole:
    return await read_whole(fixed(broker.metaq_port), fixed(broker.rocketmq_port), QUEUES)


def log_end(broker: ChaosBroker) -> int:
    code, status = broker.get("/admin/v1/status")
    assert code == 200
    return int(status["logEnd"])


def record_at(broker: ChaosBroker, log_offset: int) -> bytes:
    """Return the record that begins at a log offset, out of the files."""
    path, position = broker.log_file(log_offset)
    data = path.read_bytes()[position:]
    return data[: int.from_bytes(data[:4], "big")]


def flip_a_bit(broker: ChaosBroker, log_offset: int) -> tuple[Path, int]:
    """Change one bit of a log file; return the file and the position."""
    path, position = broker.log_file(log_offset)
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))
    return path, position


def noise(_: bytes) -> bytes:
    return random.Random(3).randbytes(700)


def first_half(record: bytes) -> bytes:
    """A record whose writing was cut short."""
    return record[: len(record) // 2]


def changed_record(record: bytes) -> bytes:
    """A record in its full length, of which one page was not written."""
    return record[:4096] + bytes(4096) + record[8192:]


@pytest.mark.parametrize(
    ("stop", "tail"),
    [
        pytest.param(ChaosBroker.stop, noise, marks=pytest.mark.full),
        pytest.param(ChaosBroker.kill, noise, marks=pytest.mark.full),
        pytest.param(ChaosBroker.kill, first_half, marks=pytest.mark.full),
        (ChaosBroker.kill, changed_record),
    ],
)
async def test_torn_tail_is_cut_and_nothing_else(
    stop: Callable[[ChaosBroker], object], tail: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    with broker_in(tmp_path) as broker:
        await write(broker, MESSAGES)
        before, end = await read(broker), log_end(broker)
        stop(broker)
        last = max(each.id for each in before[Protocol.ROCKETMQ, QUEUES[1]])
        record = bytearray(record_at(broker, last))
        record[PLACE] = end.to_bytes(8, "big")  # as the next record would say
        path, position = broker.log_file(end)
        with path.open("r+b") as file:
            file.seek(position)
            file.write(tail(bytes(record)))
        broker.start()
        broker.wait()
        assert await read(broker) == before
        await write(broker, MORE_MESSAGES)
        after = await read(broker)
        assert {where: found[: len(before[where])] for where, found in after.items()} == before
        counts = [sum(map(len, whole.values())) for whole in (before, after)]
        assert counts[1] - counts[0] == len(Protocol) * 2 * len(MORE_MESSAGES)


async def test_damage_in_the_middle_of_a_killed_brokers_log_costs_what_is_damaged(
    tmp_path: Path,
) -> None:
    with broker_in(tmp_path) as broker:
        await write(broker, MESSAGES)
        before = await read(broker)
        broker.kill()
        victim = before[Protocol.ROCKETMQ, QUEUES[1]][-3]
        path, position = flip_a_bit(broker, victim.id + IN_THE_BODY)
        damaged = path.read_bytes()
        for stop in (broker.kill, broker.stop):
            broker.start()
            broker.wait()
            code, ready = broker.get("/readyz")
            assert code == 200
            (warning,) = ready["warnings"]
            assert f"{path} at byte {position - IN_THE_BODY}: " in warning
            (told,) = broker.get("/admin/v1/status")[1]["damaged"]
            assert told["from"] == victim.id
            assert await read(broker) == {
                where: [each for each in found if each.key != victim.key]
                for where, found in before.items()
            }
            assert (
                path.read_bytes()[: position + FILLER_BYTES] == damaged[: position + FILLER_BYTES]
            )
            stop()
        flip_a_bit(broker, victim.id + IN_THE_BODY)
        broker.start()
        broker.wait()
        assert await read(broker) == before
        well = {"ready": True, "writable": True, "reasons": [], "warnings": []}
        assert broker.get("/readyz") == (200, well)


@pytest.mark.parametrize(
    "through",
    [
        pytest.param(list(Protocol), id="with-files-of-its-own"),
        pytest.param([Protocol.ROCKETMQ], id="out-of-the-log"),
    ],
)
@pytest.mark.full
async def test_damage_at_rest_costs_one_message_and_is_never_delivered(
    through: list[Protocol], tmp_path: Path
) -> None:
    with broker_in(tmp_path) as broker:
        await write(broker, MESSAGES, through=through)
        before = await read(broker)
        assert broker.stop() == 0
        victims = [before[Protocol.ROCKETMQ, queue][5] for queue in QUEUES]
        keys = [victim.key for victim in victims]
        for victim in victims:
            assert victim.key is not None
            assert victim.key.producer == 1, "its body is long enough"
            flip_a_bit(broker, victim.id + IN_THE_BODY)
        broker.start()
        broker.wait()
        after = await read(broker)
        for (protocol, queue), messages in before.items():
            kept = [each for each in messages if each.key not in keys]
            found = after[protocol, queue]
            # What MetaQ's own files hold is whole there.
            whole_elsewhere = protocol is Protocol.METAQ and Protocol.METAQ in through
            assert found == kept or (whole_elsewhere and found == messages)
        damaged = broker.get("/admin/v1/status")[1]["damaged"]
        for victim in victims:
            assert any(each["from"] <= victim.id < each["to"] for each in damaged)
        await write(broker, MORE_MESSAGES)
