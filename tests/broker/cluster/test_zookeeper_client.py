"""How long kazoo may take to find a server again: what is left of a session must be enough."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler

from imago_broker.cluster.session import kazoo_parts
from imago_broker.cluster.session.kazoo_parts import BoundedHandler, connection_retry
from imago_broker.cluster.zookeeper import ZooKeeperTree


@pytest.mark.parametrize("session_ms", [2000, 6000, 40_000])
def test_pauses_between_attempts_stay_within_a_third_of_a_session(session_ms: int) -> None:
    retry = connection_retry(session_ms)
    slept: list[float] = []
    retry.sleep_func = slept.append

    def refused() -> None:
        if len(slept) < 200:
            raise ConnectionLoss

    retry(refused)
    assert max(slept) <= session_ms / 1000 / 3


@pytest.mark.parametrize(
    ("session_ms", "servers", "seconds"), [(6000, 1, 2.0), (6000, 3, 2 / 3), (2000, 5, 0.5)]
)
def test_a_server_that_answers_nothing_is_left_in_time(
    monkeypatch: pytest.MonkeyPatch, session_ms: int, servers: int, seconds: float
) -> None:
    seen: list[Any] = []

    def connect(_: object, **options: Any) -> None:
        seen.append(options["timeout"])

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", connect)
    BoundedHandler(session_ms, servers).create_connection(address=("x", 1), timeout=60.0)
    assert seen == [pytest.approx(seconds)]


async def test_a_client_that_cannot_be_ended_does_not_keep_the_next_one_from_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging:
        def stop(self) -> None:
            raise WriterNotClosedException

    made: list[object] = []
    tree = ZooKeeperTree("127.0.0.1:1", session_timeout_ms=2000, connect_timeout_ms=1000)
    tree._client = Hanging()
    monkeypatch.setattr(tree, "_open_client", lambda: made.append(tree))
    await tree._renew()
    assert made == [tree]
    kazoo_parts.close(Hanging())
