"""Sends that do not simply go to their queue, and ends of transactions, taken from a read together.

The first one to a queue goes through the table, the next ones do not: what is stored and answered
must be the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.model import names
from imago_broker.processors.rocketmq.send import send_parking
from imago_broker.server.remoting.remoting_channel import RemotingChannel
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.transactions import COMMIT, ROLLBACK, half, half_properties
from imago_wire.errors import LimitExceededError
from imago_wire.record_format.sequences import Sequence as Numbered
from imago_wire.record_format.sequences import wire_properties
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.texts.handles import parse_recall_handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.app import Broker
    from imago_wire.record_format.entries import QueueTail
    from imago_wire.records.record import Entry, Placed
    from imago_wire.remoting.command import RemotingCommand

P = "00000000000000aa"


def numbered(number: int) -> str:
    return f"UNIQ_KEY\x01{number:032d}\x02" + wire_properties(Numbered(P, 0, number))


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codes of the requests that go through the table."""
    served: list[int] = []
    real = RemotingChannel.serve

    def serve(channel: RemotingChannel, command: RemotingCommand) -> None:
        served.append(command.code)
        real(channel, command)

    monkeypatch.setattr(RemotingChannel, "serve", serve)
    return served


@pytest.mark.parametrize("form", list(SerializeType))
@pytest.mark.parametrize(
    ("asks", "sys_flag", "topic", "queue"),
    [
        ("DELAY\x015\x02TIMER_DELAY_SEC\x019\x02", 0, names.SCHEDULE_TOPIC, 4),
        ("DELAY\x0199\x02", 0, names.SCHEDULE_TOPIC, 17),
        ("TIMER_DELAY_SEC\x0190\x02", 0, names.TIMER_TOPIC, None),
        ("TIMER_DELAY_MS\x0190000\x02", 0, names.TIMER_TOPIC, None),
        ("TRAN_MSG\x01true\x02PGROUP\x01P\x02", 4, names.HALF_TOPIC, 0),
        ("TRAN_MSG\x01TRUE\x02", 0, names.HALF_TOPIC, 0),
        ("", 4, names.HALF_TOPIC, 0),
    ],
)
async def test_short_way_stores_and_answers_what_the_careful_one_does(
    peer: RemotingPeer,
    broker: Broker,
    careful: list[int],
    asks: str,
    sys_flag: int,
    topic: str,
    queue: int | None,
    form: SerializeType,
) -> None:
    properties = "TAGS\x01标签\x02UNIQ_KEY\x01u\x02KEYS\x01a b\x02" + asks
    answers = []
    for _ in range(3):
        ext = send_ext("T", 1, properties, f=sys_flag, h=7)
        answers.append(await peer.answer(peer.send(310, ext, b"body", serialize=form)))
    assert careful.count(310) == 2, "the first makes the topic, the second its queue"
    if queue is None:
        queue = next(q for q in range(1025) if broker.store.queue_range(topic, q)[1])
    first, _, second = await peer.messages(topic, queueId=queue)
    changing = {"TIMER_OUT_MS", "__UNIT_TAG", "__CRC32#"}
    assert list(first.properties) == list(second.properties)
    assert {name: value for name, value in first.properties.items() if name not in changing} == {
        name: value for name, value in second.properties.items() if name not in changing
    }
    for name in ("body", "flag", "sys_flag", "born_ms", "born_host", "reconsume_times"):
        assert getattr(first, name) == getattr(second, name)
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 3
    del answers[1]
    assert set(answers[0].ext) == set(answers[1].ext)
    assert [answer.ext["queueOffset"] for answer in answers] == ["0", "2"]
    for name in ("queueId", "transactionId", "MSG_REGION", "TRACE_ON"):
        assert answers[0].ext[name] == answers[1].ext[name]
    if topic == names.TIMER_TOPIC:
        for answer, stored in zip(answers, (first, second), strict=True):
            recall = parse_recall_handle(answer.ext["recallHandle"])
            assert str(recall.deliver_ms) == stored.properties["TIMER_OUT_MS"]
            assert (recall.topic, recall.message_id) == ("T", "u")
    elif topic == names.HALF_TOPIC:
        group = first.properties["PGROUP"]
        assert broker.rocketmq.transactions.service.halves.of_group(group) == 3


async def test_refused_rounds_store_no_number_without_the_one_before(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch, careful: list[int]
) -> None:
    await half(peer, b"h0")
    await peer.put("T", b"0", properties=numbered(0))
    careful.clear()
    append = broker.store.append

    def bounded(entries: Sequence[Entry], **options: bool) -> list[Placed]:
        if any(entry[1] == b"large" for entry in entries):
            raise LimitExceededError("record", size=2, size_max=1)
        return append(entries, **options)

    monkeypatch.setattr(broker.store, "append", bounded)
    opaques = [
        peer.send(310, send_ext("T", 0, numbered(1)), b"1"),
        peer.send(310, send_ext("T", 0, half_properties("h1"), f=4), b"h1"),
        peer.send(310, send_ext("T", 0, numbered(2)), b"large"),
        peer.send(310, send_ext("T", 0, half_properties("h2"), f=4), b"large"),
        peer.send(310, send_ext("T", 0, numbered(3)), b"3"),
        peer.send(310, send_ext("T"), b"plain"),
    ]
    codes = [(await peer.answer(opaque)).code for opaque in opaques]
    assert careful == []
    assert codes[1] == codes[5] == ResponseCode.SUCCESS
    assert codes[2] == codes[3] == ResponseCode.MESSAGE_ILLEGAL
    assert codes[4] != ResponseCode.SUCCESS
    bodies = [m.body for m in await peer.messages("T")]
    assert b"3" not in bodies
    assert b"plain" in bodies
    transactions = broker.rocketmq.transactions.service
    assert len(transactions.halves) == 2
    assert transactions.halves.counted == 2
    assert transactions.term.half_border.offset == 2
    for number in range(1, 4):
        answer = await peer.put("T", b"%d" % number, properties=numbered(number))
        assert answer.code == ResponseCode.SUCCESS
    told = [m.body for m in await peer.messages("T") if m.body in (b"0", b"1", b"2", b"3")]
    assert told == [b"0", b"1", b"2", b"3"]


async def test_ends_among_sends_of_one_read_are_taken_in_their_order(
    peer: RemotingPeer, broker: Broker, careful: list[int]
) -> None:
    for _ in range(2):
        await peer.put("T", b"first", queue_id=1)
    halves = [await half(peer, b"%d" % n) for n in range(4)]
    careful.clear()
    opaques = [
        peer.send(RequestCode.END_TRANSACTION, halves[0].header(COMMIT)),
        peer.send(310, send_ext("T", 1), b"between"),
        peer.send(RequestCode.END_TRANSACTION, halves[1].header(ROLLBACK)),
        peer.send(
            RequestCode.END_TRANSACTION,
            halves[3].header(COMMIT),
            serialize=SerializeType.ROCKETMQ,
        ),
        peer.send(310, send_ext("T", 1), b"behind"),
        peer.send(RequestCode.END_TRANSACTION, halves[2].header(COMMIT, msgId="x")),
        peer.send(310, send_ext("T", 1), b"last"),
    ]
    answers = [await peer.answer(opaque) for opaque in opaques]
    codes = [answer.code for answer in answers]
    assert codes == [*[ResponseCode.SUCCESS] * 5, ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS]
    assert careful == [RequestCode.END_TRANSACTION], "only the wrong one needs a closer look"
    assert [m.body for m in await peer.messages("T")] == [b"0", b"3"]
    told = [m.body for m in await peer.messages("T", queueId=1)]
    assert told == [b"first", b"first", b"between", b"behind", b"last"]
    assert list(broker.rocketmq.transactions.service.halves) == [halves[2].queue_offset]
    lanes = broker.ports.rocketmq.protocol_factory().server.table.lanes  # type: ignore[attr-defined]  # a remoting session
    assert (lanes["send"].running, lanes["transaction"].running) == (0, 0)


async def test_half_messages_above_the_limit_are_refused_in_one_read_too(
    peer: RemotingPeer, broker: Broker
) -> None:
    await half(peer, b"0")
    settings = broker.rocketmq.settings
    settings.current = replace(settings.current, transactions_per_group_max=3)
    opaques = [peer.send(310, send_ext("T", 0, half_properties("u"), f=4), b"x") for _ in range(4)]
    codes = [(await peer.answer(opaque)).code for opaque in opaques]
    assert codes == [ResponseCode.SUCCESS] * 2 + [ResponseCode.SYSTEM_BUSY] * 2


async def test_ends_and_halves_by_turns_take_the_short_ways(
    peer: RemotingPeer, broker: Broker, careful: list[int]
) -> None:
    for _ in range(2):
        await peer.put("T", b"first", queue_id=1)
    first = await half(peer, b"0")
    assert (await peer.call(RequestCode.END_TRANSACTION, first.header(COMMIT))).code == 0
    await half(peer, b"1")  # the queue is there by now
    careful.clear()
    for number in range(2, 5):
        begun = await half(peer, b"%d" % number)
        header = begun.header(COMMIT if number % 2 else ROLLBACK)
        assert (await peer.call(RequestCode.END_TRANSACTION, header)).code == 0
        assert (await peer.put("T", b"plain", queue_id=1)).code == 0
        assert (await peer.pull("T", queueId=1)).code == 0
    assert set(careful) <= {RequestCode.PULL_MESSAGE}
    assert careful.count(RequestCode.PULL_MESSAGE) <= 1, "the first one makes the group"
    assert [m.body for m in await peer.messages("T")] == [b"0", b"3"]
    assert len(broker.rocketmq.transactions.service.halves) == 1


async def test_repeat_of_an_end_that_is_under_way_is_answered_with_it(
    peer: RemotingPeer, careful: list[int]
) -> None:
    await half(peer, b"0")
    begun = [await half(peer, b"%d" % n) for n in range(2)]
    careful.clear()
    opaques = [
        peer.send(RequestCode.END_TRANSACTION, each.header(COMMIT)) for each in (*begun, begun[0])
    ]
    codes = [(await peer.answer(opaque)).code for opaque in opaques]
    assert codes == [ResponseCode.SUCCESS] * 3
    assert careful == [RequestCode.END_TRANSACTION]
    assert [m.body for m in await peer.messages("T")] == [b"0", b"1"]


@pytest.fixture
def looked_up(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Producers of which it is looked up what is expected."""
    found: list[str] = []
    path = broker.ports.rocketmq.protocol_factory.__self__.send_path  # type: ignore[attr-defined]  # of a remoting server
    real = path._parking.expect

    def expect(producer: str, tail: QueueTail) -> tuple[int, int]:
        found.append(producer)
        known: tuple[int, int] = real(producer, tail)
        return known

    monkeypatch.setattr(path._parking, "expect", expect)
    return found


async def test_what_is_expected_of_a_producer_is_kept_until_something_else_happens(
    peer: RemotingPeer, broker: Broker, looked_up: list[str], careful: list[int]
) -> None:
    async def put(number: int, epoch: int = 0, queue: int = 0) -> int:
        properties = f"UNIQ_KEY\x01{number:032d}\x02" + wire_properties(Numbered(P, epoch, number))
        answer = await peer.put("T", b"%d" % number, queue_id=queue, properties=properties)
        return answer.code

    for queue in range(2):
        await peer.put("T", b"plain", queue_id=queue, properties="UNIQ_KEY\x01u\x02")
    assert await put(0) == 0
    careful.clear()
    for number in range(1, 6):
        assert await put(number) == 0
    assert looked_up == [P]
    assert not careful
    # A new life of the producer in another queue: it begins again everywhere.
    assert await put(0, 1, 1) == 0
    assert await put(6) != 0
    assert await put(0, 1) == 0
    assert await put(1, 1) == 0
    # Whoever let go of it: the next number is out of order.
    broker.store.producers.drop_topic("T")
    assert await put(2, 1) != 0
    assert await put(0, 1) == 0
    told = [m.body for m in await peer.messages("T")]
    assert told == [b"plain", b"0", b"1", b"2", b"3", b"4", b"5", b"0", b"1", b"0"]


async def test_more_producers_than_are_kept(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch, looked_up: list[str]
) -> None:
    monkeypatch.setattr(send_parking, "EXPECTED_MAX", 1)
    await peer.put("T", b"plain", properties="UNIQ_KEY\x01u\x02")
    for number in range(4):
        for producer in range(3):
            sent = Numbered(f"{producer:016x}", 0, number)
            properties = f"UNIQ_KEY\x01{number:032d}\x02" + wire_properties(sent)
            assert (await peer.put("T", b"n", properties=properties)).code == 0
    assert len(looked_up) > 4
    assert len(await peer.messages("T")) == 13
