"""Which shards get a topic, and what is said where a master is missing or does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_client.core.administration import (
    administration,
    group_administration,
    group_resets,
    topic_changes,
)
from imago_client.core.administration import shards as module_of_shards
from imago_client.core.administration.shards import ShardInfo
from imago_client.core.administration.topic_changes import TopicSettings, alter_topic, create_topic
from imago_client.core.consuming import pulling
from imago_client.core.routing import TopicRoute
from imago_client.errors import BrokerError, ConnectionLostError, HalfDoneError, TryAgainError
from imago_client.message_queue import MessageQueue
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig, TopicConfig
from imago_wire.remoting.bodies.route import BrokerData, ClusterInfo, MissingShardData
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
        self.missing: tuple[str, ...] = ()
        monkeypatch.setattr(module_of_shards, "cluster_info", lambda _: self._returns(self._info()))
        monkeypatch.setattr(module_of_shards, "find_route", lambda *_: self._returns(self.route()))
        monkeypatch.setattr(administration, "ask_name_service", self._unlists)
        self.unlisted = False
        monkeypatch.setattr(topic_changes, "_configs", lambda *_: self._returns(self.there))
        monkeypatch.setattr(topic_changes, "_ask", self._ask)
        monkeypatch.setattr(topic_changes, "_until_routed", self._until_routed)
        for module in (administration, group_administration):
            monkeypatch.setattr(module, "body_of", self._deletes)

    def _info(self) -> ClusterInfo:
        brokers = {
            one.shard: BrokerData(broker_addrs=one.addresses, broker_name=one.shard)
            for one in self.found
        }
        away = tuple(MissingShardData(broker_name=name) for name in self.missing)
        return ClusterInfo(broker_addr_table=brokers, cluster_addr_table={}, imago_missing=away)

    def route(self) -> TopicRoute:
        """Its queues are on the first two shards alone."""
        queues = [MessageQueue("t", f"shard-{n}", 0) for n in range(2)]
        lost = tuple(one for one in queues if one.shard in self.missing)
        led = tuple(one for one in queues if one.shard not in self.missing)
        addresses = {one.shard: one.addresses for one in self.found}
        return TopicRoute("t", led, tuple(queues), addresses, lost)

    def leave(self, shard: str) -> None:
        """Have no member of a shard live any more."""
        self.found = [one for one in self.found if one.shard != shard]
        self.missing = (*self.missing, shard)

    def _unlists(self, *_: object) -> Operation[None]:
        self.unlisted = True
        yield from ()

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


@pytest.mark.parametrize("members_live", [True, False])
def test_a_shard_without_master_lacks_what_is_changed_on_the_others(
    shards: Shards, *, members_live: bool
) -> None:
    """Also one that nothing is left of: the name service tells of it."""
    if members_live:
        shards.found[1] = ShardInfo("shard-1", "c", {1: "h:9"})
    else:
        shards.leave("shard-1")
    state: Any = State()
    with pytest.raises(TryAgainError, match=r"not made, since shard-1 has no master"):
        create(shards)
    assert shards.asked == []
    shards.there = {"shard-0": TopicConfig(topic_name="t")}
    fewer, perm = TopicSettings(queues=1), TopicSettings(perm=4)
    with pytest.raises(TryAgainError, match=r"not changed, since shard-1 has no master"):
        shards.run(alter_topic(state, "t", fewer, hide_messages=False))
    assert shards.asked == [], "nobody knows what it would hide there"
    with pytest.raises(HalfDoneError, match=r"topic t: done on shard-0, and .*shard-1 has no") as e:
        shards.run(alter_topic(state, "t", perm, hide_messages=False))
    assert e.value.away == ("shard-1",)
    shards.there = {}
    with pytest.raises(HalfDoneError, match=r"perhaps not done"):
        shards.run(alter_topic(state, "t", perm, hide_messages=False))
    with pytest.raises(HalfDoneError, match=r"done on shard-0, shard-2, and .*shard-1 has no"):
        shards.run(administration.delete_topic(state, "t"))
    assert not shards.unlisted, "else a repeated call would find nothing to do"
    config = SubscriptionGroupConfig(group_name="g")
    for change in (
        group_administration.create_group(state, config),
        group_administration.delete_group(state, "g"),
        group_administration.set_request_mode(state, "g", "t", "pop", 0),
    ):
        with pytest.raises(HalfDoneError, match=r"group g: done on shard-0, shard-2, and .*no mas"):
            shards.run(change)


def test_a_reset_that_a_shard_lacks_is_half_done(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards.leave("shard-1")
    queue, nothing = MessageQueue("t", "shard-0", 0), lambda *_: shards._returns(None)
    module = group_resets
    monkeypatch.setattr(module, "find_route", lambda *_: shards._returns(shards.route()))
    monkeypatch.setattr(module, "reset_targets", lambda *_: shards._returns({queue: 7}))
    monkeypatch.setattr(pulling, "commit", nothing)
    monkeypatch.setattr(module, "_tell_members", nothing)
    with pytest.raises(HalfDoneError, match=r"group g in t: done on shard-0, and .*shard-1 has"):
        shards.run(module.reset_group(State(), "g", "t", "latest"))  # type: ignore[arg-type]


def test_a_shard_that_never_had_the_topic_lacks_nothing(shards: Shards) -> None:
    shards.leave("shard-2")
    state: Any = State()
    shards.there = {f"shard-{n}": TopicConfig(topic_name="t") for n in range(2)}
    shards.run(alter_topic(state, "t", TopicSettings(perm=4), hide_messages=False))
    shards.run(administration.delete_topic(state, "t"))
    assert shards.unlisted
