"""What ordinary receives ask for, read once for all that ask for the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.pop import short_pops
from imago_broker.features.pop.pop_requests import PopProcessor
from imago_broker.features.pop.reading import PopAsk, PopReader
from imago_broker.features.pop.waiting import ANY_QUEUE
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import PERM_WRITE, TopicConfig
from imago_broker.processors.grpc.consuming import plain_receives
from imago_broker.processors.grpc.consuming.plain_receives import kept_receive, plain_receive
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_testing.peers.features import pop_of
from imago_testing.peers.sdk_calls import asks, message, received, sends
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import encoded

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_broker.features.pop.feature import PopServices
    from imago_testing.peers.sdk_peer import SdkPeer

TRY = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    kept_receive.cache_clear()


def asked(**changes: Any) -> plain_receives.PlainReceive | None:
    return plain_receive(encoded(asks(**changes)))


def test_a_request_is_read() -> None:
    found = asked(expression="a || b", batch_size=7, invisible_ms=12_000)
    assert found == ("plain", "readers", "a || b", 7, 12_000, False)
    assert asked(batch_size=0) == ("plain", "readers", "*", 32, 20_000, False)


def test_tries_are_no_requests_of_their_own() -> None:
    request, plain = asks(), encoded(asks())
    for number in range(5):
        request.attempt_id = f"{number}{TRY[1:]}"
        assert plain_receive(encoded(request)) == plain_receive(plain) is not None
    assert kept_receive.cache_info().currsize == 1
    request.attempt_id = f"{'ö' * 12}012345678901"
    assert len(request.attempt_id.encode()) == 36
    assert plain_receive(encoded(request)) is not None
    assert kept_receive.cache_info().currsize == 2


def test_what_only_looks_like_a_try_is_no_message_without_it() -> None:
    request = asks()
    request.ClearField("long_polling_timeout")
    request.filter_expression.expression = "x" * 60 + "B$" + "y" * 36
    for name in ("batch_size", "invisible_duration"):
        request.ClearField(name)
    data = encoded(request)
    assert data[-38:-36] == b"B$"
    assert plain_receive(data) is None


@pytest.mark.parametrize(
    "changes", [{"topic": "a b"}, {"kind": 2}, {"invisible_ms": 9_999}, {"invisible_ms": 1 << 40}]
)
def test_what_may_be_refused_is_not_read(changes: dict[str, Any]) -> None:
    assert asked(**changes) is None
    assert plain_receive(b"\xff") is None


def test_few_are_kept_and_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(plain_receives.ASKED_KEPT_MAX + 2):
        assert asked(expression=f"t{number}") is not None
    assert kept_receive.cache_info().currsize == plain_receives.ASKED_KEPT_MAX
    size = len(encoded(asks()))
    monkeypatch.setattr(plain_receives, "ASKED_BYTES_MAX", size)
    assert asked() is not None
    monkeypatch.setattr(plain_receives, "ASKED_BYTES_MAX", size - 1)
    assert asked() is None


async def test_receives_go_the_short_way(peer: SdkPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The careful one is not asked where something is there; a large request takes it."""
    await peer.call("SendMessage", sends(*[message(message_id=f"{n}") for n in range(2)]))
    assert (await received(peer, asks(batch_size=1)))[0] == SdkCode.OK
    assert kept_receive.cache_info().currsize == 1
    monkeypatch.setattr(plain_receives, "ASKED_BYTES_MAX", 0)
    code, (found,) = await received(peer, asks(batch_size=1))
    assert (code, found.body) == (SdkCode.OK, b"body")
    assert kept_receive.cache_info().currsize == 1


class Asking:
    """What short POPs ask for, and how often that is found again."""

    def __init__(self, pop: PopServices, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pop, self.found, self.last = pop, 0, None
        take, ask = PopReader.take, PopProcessor.ask

        def taken(reader: PopReader, wanted: PopAsk, now_ms: int) -> Any:
            self.last = wanted
            return take(reader, wanted, now_ms)

        def asked_anew(popping: PopProcessor, *place: Any, **more: Any) -> PopAsk:
            self.found += 1
            return ask(popping, *place, **more)

        monkeypatch.setattr(PopReader, "take", taken)
        monkeypatch.setattr(PopProcessor, "ask", asked_anew)

    def same(self, expression: tuple[str, str] = ("TAG", "a || b")) -> int:
        """Check that a POP asks for what it finds again; return whether it was found again."""
        popping, self.last, before = self._pop.popping, None, self.found
        turns = popping.turns
        self._pop.short.take_now("readers", "plain", expression, 7, 20_000, lambda *_: None)
        found, popping.turns = self.found - before, turns
        try:
            wanted = popping.ask(
                ("readers", "plain", ANY_QUEUE), expression, "",
                messages_max=7, invisible_ms=20_000, from_end=True, in_order=False,
            )  # fmt: skip
        except RequestError:
            wanted = None
        assert self.last == wanted
        return found


@pytest.fixture
def asking(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Asking:
    broker.groups.update(GroupConfig(name="readers"))
    return Asking(pop_of(broker), monkeypatch)


PLAIN_TOPIC = TopicConfig(name="plain", read_queues=2, write_queues=2)


async def test_what_is_asked_again_is_not_looked_for_again(asking: Asking) -> None:
    assert [asking.same() for _ in range(6)] == [1, 1, 0, 0, 0, 0]
    assert [asking.same(("TAG", "c")) for _ in range(3)] == [1, 1, 0]


async def test_settings_count_from_when_they_change(broker: Broker, asking: Asking) -> None:
    """What topic and group are is looked at each time, whatever was found before."""
    topics, groups = broker.topics.create_or_update, broker.groups.update
    group = GroupConfig(name="readers")
    for change in (
        lambda: topics(replace(PLAIN_TOPIC, read_queues=3, write_queues=3)),
        lambda: topics(replace(PLAIN_TOPIC, perm=PERM_WRITE)),
        lambda: topics(replace(PLAIN_TOPIC, attributes={"message.type": "PRIORITY"})),
        lambda: groups(replace(group, consume_enable=False)),
        lambda: groups(replace(group, forbidden_topics=("plain",))),
        lambda: broker.groups.delete("readers"),
    ):
        assert [asking.same() for _ in range(4)][-1] == 0
        change()
        for _ in range(3):
            asking.same()
        topics(PLAIN_TOPIC)
        groups(group)


async def test_unread_answers_count_though_the_request_is_known(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        asking.same()
    monkeypatch.setattr(PopProcessor, "allowance", lambda _: 100)
    assert [asking.same() for _ in range(3)] == [1, 1, 1]
    assert asking.last is not None
    assert asking.last.bytes_max == 100


async def test_a_known_request_takes_what_resets_were_pending(
    broker: Broker, asking: Asking
) -> None:
    resets = pop_of(broker).popping._resets
    for _ in range(3):
        asking.same()
    resets.add("readers", "plain", 1, 0)
    assert asking.same() == 0
    assert not resets


async def test_few_requests_of_small_topics_are_known(
    broker: Broker, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_pops, "ASKS_KEPT_MAX", 2)
    for text in ("a", "b"):
        assert [asking.same(("TAG", text)) for _ in range(3)] == [1, 1, 0]
    assert [asking.same(("TAG", text)) for text in ("a", "b")] == [0, 0]
    assert [asking.same(("TAG", text)) for text in ("c", "a")] == [1, 1]
    count = short_pops.QUEUES_KEPT_MAX
    for queues, found in ((count, 0), (count + 1, 1)):
        topic = replace(PLAIN_TOPIC, read_queues=queues, write_queues=queues)
        broker.topics.create_or_update(topic)
        assert [asking.same() for _ in range(2 * queues)][-1] == found
