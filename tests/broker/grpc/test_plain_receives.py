"""What ordinary receives ask for, read once for all that ask for the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.grpc.consuming import plain_receives
from imago_broker.processors.grpc.consuming.plain_receives import kept_receive, plain_receive
from imago_testing.peers.sdk_calls import asks, message, received, sends
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import encoded

if TYPE_CHECKING:
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
