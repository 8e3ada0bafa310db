"""Which MetaQ consumers are started again: those whose own client says why they hang."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

import pytest

from imago_testing.interop import streams
from imago_testing.interop.hanging import ONE_TOO_MANY, HangingConsumer
from imago_testing.interop.metaq import Got, MetaqClient
from imago_testing.interop.streams import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FakeConsumer:
    """Gives what its topic has, unless it hangs."""

    def __init__(self, hangs: bool) -> None:
        self.rest: list[Got] = []
        self._given = [] if hangs else [got(2)]

    def take(self, *_: object, **__: object) -> list[Got]:
        given, self._given = self._given, []
        return given


class FakeClient:
    """Its first consumer hangs."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self.driver = self
        self.started = 0

    @contextlib.contextmanager
    def factory(self) -> Iterator[FakeClient]:
        yield self

    @contextlib.contextmanager
    def consumer(self, *_: object) -> Iterator[FakeConsumer]:
        self.started += 1
        consumer = FakeConsumer(hangs=self.started == 1)
        yield consumer
        consumer.rest.append(got(1))


def got(number: int) -> Got:
    return Got(id=number, topic="t", body=b"s/%d/" % number, attribute=None, partition="0-0")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    monkeypatch.setattr(streams, "_HANGS_SECONDS", 0.3)
    monkeypatch.setattr(streams, "_CONSUMED_SECONDS_MAX", 1.0)
    log = tmp_path / "driver.log"
    log.write_text(f"WARN GeckoHandler {ONE_TOO_MANY}: before it was started\n")
    return FakeClient(log)


def wait(client: FakeClient, says: str) -> Reader:
    with HangingConsumer(cast("MetaqClient", client), "t", "g") as consumer:
        with client.log_path.open("a") as log:
            log.write(says)
        with Reader("metaq consumer", consumer.take, consumer.restarted) as reader:
            reader.until_got({b"s/1/", b"s/2/"})
        return reader


def test_one_whose_client_closed_a_connection_too_many_is_started_again(
    client: FakeClient,
) -> None:
    reader = wait(client, f"WARN GeckoHandler {ONE_TOO_MANY}1\n")
    assert client.started == 2
    assert sorted(reader.got) == [b"s/1/", b"s/2/"], "what the former one had left, too"


def test_one_whose_client_says_nothing_has_no_excuse(client: FakeClient) -> None:
    with pytest.raises(TimeoutError, match="2 are missing"):
        wait(client, "WARN ConsumerZooKeeper rebalance success.\n")
    assert client.started == 1
