"""What is kept of what SDKs say of themselves: within bounds, and nothing of who was refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.grpc import clients
from imago_broker.processors.grpc.asking import AskedResult
from imago_broker.processors.grpc.calls import Call
from imago_broker.processors.grpc.clients import SdkClients
from imago_testing.peers.sdk_calls import consumer
from imago_testing.virtual.clocks import ManualClock
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import parse
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence


class Keeping:
    """Keeps nothing out for anybody."""

    def only_for(self, clients: Container[tuple[str, str]]) -> None:
        """Take it."""

    def gone(self, client: tuple[str, str]) -> None:
        """Take it."""


class Stream:
    """A telemetry stream whose peer is the test."""

    peer, address, certificate_user, born_host = "10.0.0.1:5", "10.0.0.1", "", bytes(8)
    is_open = True

    def __init__(self) -> None:
        self.connection = self
        self.codes: list[int] = []
        self.over = False

    def send(self, messages: bytes, *, last: bool) -> None:
        if messages:
            self.codes.append(parse("TelemetryCommand", messages[5:]).status.code)
        self.over = self.over or last

    def stored(self, message_id: bytes, offset: int) -> None:
        raise AssertionError(message_id, offset)

    def fail(self, status: int, text: str) -> None:
        raise AssertionError(status, text)

    def watch(self, watcher: Callable[[], None]) -> None: ...
    def unwatch(self, watcher: Callable[[], None]) -> None: ...
    def throttle(self, milliseconds: float) -> None: ...
    def close(self) -> None: ...


class Broker:
    """What stands behind: registers whom it is told to."""

    def __init__(self) -> None:
        self.code = ResponseCode.SUCCESS
        self.told = SdkClients(
            asker=self,  # type: ignore[arg-type]
            registry=self,  # type: ignore[arg-type]
            groups=self,  # type: ignore[arg-type]
            clock=ManualClock(epoch_ms=1000),
            loop=asyncio.get_running_loop(),
            renewals=Keeping(),
            body_bytes_max=lambda: 4 << 20,
            may=lambda *_: True,
        )

    def ask(self, _call: Any, _code: int, _ext: Any, done: Any, **_: Any) -> None:
        done(AskedResult(self.code, "no", {}, b"", denied=False))

    def get(self, _group: str) -> None:
        return None

    def closed(self, _channel: Any) -> None: ...

    def say(
        self,
        name: str,
        expression: str = "*",
        *,
        topics: Sequence[str] = ("plain",),
        user: str = "",
    ) -> Stream:
        """Open a telemetry stream and say what the client is."""
        command, stream = consumer("readers", *topics), Stream()
        for each in command.settings.subscription.subscriptions:
            each.expression.expression = expression
        headers = {"x-mq-client-id": name, "x-mq-language": "JAVA"}
        call = Call(stream, headers, "TelemetryCommand")
        call.user = user
        self.told.told(call, command)
        return stream


@pytest.fixture
async def broker() -> Broker:
    return Broker()


async def test_a_topic_that_is_named_often_is_kept_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SETTINGS_BYTES_MAX", 3000)
    assert broker.say("one", "x" * 100, topics=["plain"] * 1000).codes == [SdkCode.OK]
    assert broker.say("two", "x" * 500, topics=["plain", "late"]).codes != [SdkCode.OK]


async def test_all_settings_have_a_bound_of_bytes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SETTINGS_BYTES_MAX", 6000)
    assert broker.say("one", "x" * 3000).codes == [SdkCode.OK]
    refused = broker.say("two", "x" * 3000)
    assert (refused.codes, refused.over) == ([SdkCode.TOO_MANY_REQUESTS], True)
    assert broker.say("one", "x" * 4000).codes == [SdkCode.OK], "in place of what it said before"
    assert len(broker.told) == 1
    assert broker.say("three").codes != [SdkCode.OK]
    assert broker.say("one", "x").codes == [SdkCode.OK], "it may always say less"
    assert broker.say("three").codes == [SdkCode.OK]


async def test_one_user_leaves_room_for_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SETTINGS_BYTES_MAX", 8000)
    codes = [broker.say(f"{n}", "x" * 500, user="mal").codes for n in range(3)]
    assert codes == [[SdkCode.OK], [SdkCode.TOO_MANY_REQUESTS], [SdkCode.TOO_MANY_REQUESTS]]
    assert broker.say("one", user="ann").codes == [SdkCode.OK]


async def test_nothing_is_kept_of_who_is_refused(broker: Broker) -> None:
    first = broker.say("one")
    assert (first.codes, len(broker.told)) == ([SdkCode.OK], 1)
    broker.code = ResponseCode.NO_PERMISSION
    for name in ("two", "one"):
        refused = broker.say(name, "x" * 10_000)
        assert (refused.codes, refused.over) == ([SdkCode.FORBIDDEN], True)
    assert len(broker.told) == 0
    broker.code = ResponseCode.SUCCESS
    assert broker.say("one").codes == [SdkCode.OK]
