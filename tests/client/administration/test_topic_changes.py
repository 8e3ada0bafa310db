"""Which shards get a topic, and what is said where a master is missing or does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_client.core.administration import administration, topic_changes
from imago_client.core.administration.administration import ShardInfo
from imago_client.core.administration.topic_changes import TopicSettings, alter_topic, create_topic
from imago_client.errors import BrokerError, ConnectionLostError, HalfDoneError, TryAgainError
from imago_wire.remoting.bodies.config import TopicConfig
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Generator

    from imago_client.core.effects import Operation

SETTINGS = TopicSettings(queues=2)


class State:
    def drop_route(self, _: str) -> None:
        """Nothing is kept here."""


class Shards:
    """Three shards; what each answers to a change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found = [ShardInfo(f"shard-{n}", "c", {0: f"h:{n}"}) for n in range(3)]
        self.there: dict[str, TopicConfig] = {}
        self.answers: dict[str, Exception] = {}
        self.asked: list[str] = []
        self.routed: list[str] = []
        for module in (topic_changes, administration):
            monkeypatch.setattr(module, "shards", lambda _: self._returns(self.found))
        monkeypatch.setattr(topic_changes, "_configs", lambda *_: self._returns(self.there))
        monkeypatch.setattr(topic_changes, "_ask", self._ask)
        monkeypatch.setattr(topic_changes, "_until_routed", self._until_routed)
        monkeypatch.setattr(administration, "body_of", self._deletes)

    def _returns(self, value: Any) -> Generator[Any, Any, Any]:
        yield from ()
        return value

    def _ask(self, _: object, __: str, address: str, *___: object) -> Operation[int]:
        yield from ()
        self.asked.append(address)
        if error := self.answers.get(address):
            raise error
        return 0

    def _deletes(self, _: object, address: str, *__: object) -> Operation[int]:
        return self._ask(_, "", address)

    def _until_routed(self, _: object, __: str, wanted: Any, **___: object) -> Operation[None]:
        yield from ()
        self.routed = list(wanted)

    def run(self, operation: Operation[Any]) -> Any:
        with pytest.raises(StopIteration) as ended:
            next(operation)
        return ended.value.value


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> Shards:
    return Shards(monkeypatch)


def create(shards: Shards, **options: Any) -> Any:
    state: Any = State()
    options = {"exist_ok": False, **options}
    return shards.run(create_topic(state, "t", SETTINGS, **options))


def cordoned(address: str) -> BrokerError:
    return BrokerError(address, ResponseCode.IMAGO_CORDONED, "this shard is cordoned")


def gone(address: str) -> ConnectionLostError:
    return ConnectionLostError(address, "Connection refused")


def test_a_cordoned_shard_is_left_out(shards: Shards) -> None:
    shards.answers["h:1"] = cordoned("h:1")
    assert create(shards) == {"shard-0": "h:0", "shard-2": "h:2"}
    assert shards.routed == ["shard-0", "shard-2"]


def test_where_all_are_cordoned_that_is_said(shards: Shards) -> None:
    shards.answers = {f"h:{n}": cordoned(f"h:{n}") for n in range(3)}
    with pytest.raises(BrokerError, match="cordoned"):
        create(shards)


def test_a_shard_without_master_is_not_left_out_silently(shards: Shards) -> None:
    shards.found[1] = ShardInfo("shard-1", "c", {1: "h:9"})
    with pytest.raises(TryAgainError, match=r"not made, since shard-1 has no master .* Repeat the"):
        create(shards)
    assert shards.asked == []
    shards.there = {"shard-0": TopicConfig(topic_name="t")}
    assert create(shards, exist_ok=True) == {"shard-0": "h:0"}, "it is there, and stays as it is"


def test_a_master_that_does_not_answer_leaves_it_half_done(shards: Shards) -> None:
    shards.answers["h:1"] = gone("h:1")
    with pytest.raises(HalfDoneError, match=r"done on shard-0, and perhaps not on others \(h:1"):
        create(shards)
    shards.there = {f"shard-{n}": TopicConfig(topic_name="t") for n in range(3)}
    state: Any = State()
    shards.answers = {"h:2": gone("h:2")}
    altered = alter_topic(state, "t", TopicSettings(perm=4), hide_messages=False)
    with pytest.raises(HalfDoneError, match=r"done on shard-0, shard-1, and .*h:2.*does the rest"):
        shards.run(altered)
    with pytest.raises(HalfDoneError, match=r"done on shard-0, shard-1"):
        shards.run(administration.delete_topic(state, "t"))
    shards.answers = {"h:0": gone("h:0")}
    with pytest.raises(HalfDoneError, match=r"topic t: perhaps not done \(h:0"):
        create(shards, exist_ok=True)
