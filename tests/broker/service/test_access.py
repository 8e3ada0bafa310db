"""Users and rules of several shards: whatever order records travel in, all end up with the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.errors import RequestError
from imago_broker.model.access import access as rights
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.quotas import Limit, subject_of_user
from imago_broker.model.access.users import User
from imago_broker.service.access import access_edits
from imago_broker.service.access.access import AccessService
from imago_broker.service.access.access_edits import Actor
from imago_log.metadata import changes
from imago_testing.searching import examples
from imago_testing.virtual.clocks import ManualClock

BY = Actor("the tests", "nowhere")
RULE = AccessRule(Resource(AccessKind.TOPIC, "a"), frozenset({Operation.PUBLISH}))


class Metadata:
    """What the service asks of a store."""

    def __init__(self) -> None:
        self.on_metadata: set[Any] = set()
        self._values: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.last: list[Any] = []

    def meta(self, kind: str) -> dict[str, Any]:
        return self._values.setdefault(kind, {})

    def put_meta(self, made: Any) -> None:
        self.writes += 1
        self.last = list(made)
        for kind, key, value in made:
            self.meta(kind)[key] = value


def service(shard: int, clock: ManualClock) -> AccessService:
    return AccessService(Metadata(), clock=clock, shard=shard)


def change(own: AccessService, what: str, name: str, value: int) -> None:
    if what == "put":
        own.put_user(User(name=name, secret=f"password{value}"), BY)
    elif what == "rules" and name in own.users:
        own.set_rules(name, [RULE] * value, BY)
    elif what == "delete":
        own.delete_user(name, BY)
    elif what == "white":
        own.set_white_addresses([f"10.0.0.{value}"] * value, BY)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "rules", "delete", "white", "merge", "time", "back"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=25,
)


@settings(max_examples=examples(300), deadline=None)
@given(STEPS)
def test_shards_agree_once_each_has_seen_all(steps: list[tuple[str, int, int, int]]) -> None:
    clocks = [ManualClock() for _ in range(3)]
    shards = [service(number, clock) for number, clock in enumerate(clocks)]
    for what, shard, other, value in steps:
        if what in ("time", "back"):
            clocks[shard].step(value if what == "time" else -value)  # clocks differ
        elif what == "merge":
            shards[shard].merge(shards[other].records())
        else:
            change(shards[shard], what, f"user{other}", value)
    for _ in range(2):
        for own in shards:
            for other_shard in shards:
                own.merge(other_shard.records())
    first = shards[0]
    for own in shards[1:]:
        assert own.digest() == first.digest()
        assert (own.users, own.rules, own.white_addresses) == (
            first.users,
            first.rules,
            first.white_addresses,
        )
        assert own.merge(first.records()) == 0


def test_the_later_change_holds_though_the_clock_went_back() -> None:
    clock = ManualClock()
    own = service(0, clock)
    own.put_user(User(name="ann", secret="password"), BY)
    elsewhere = service(1, clock)
    elsewhere.merge(own.records())
    clock.step(-1000)
    own.delete_user("ann", BY)
    elsewhere.merge(own.records())
    assert elsewhere.users == {}


def test_a_user_may_nothing_once_it_is_gone_or_disabled() -> None:
    own = service(0, ManualClock())
    user = User(name="ann", secret="password")

    def may() -> bool:
        rights = own.rights_of("ann")
        return rights.allows(Operation.PUBLISH, AccessKind.TOPIC, "a", "10.0.0.1")

    own.put_user(user, BY)
    own.set_rules("ann", [RULE], BY)
    assert may()
    own.put_user(replace(user, enabled=False), BY)
    assert not may()
    own.put_user(user, BY)
    assert may()
    own.delete_user("ann", BY)
    assert not may()
    own.put_user(user, BY)
    assert not may(), "rules of a user that is gone came back with its name"


def test_an_account_is_made_and_changed_in_one_write() -> None:
    log = Metadata()
    own = AccessService(log, clock=ManualClock(), shard=0)
    ann, subject = User(name="ann", secret="password"), subject_of_user("ann")
    own.put_account(ann, [RULE], BY, {Limit.CONNECTIONS: 5})
    assert (own.rules["ann"], own.quota_table.quotas[subject]) == ((RULE,), {Limit.CONNECTIONS: 5})
    assert log.writes == 1
    own.put_account(replace(ann, enabled=False), [], BY, {})
    assert not own.users["ann"].enabled
    assert "ann" not in own.rules
    assert subject not in own.quota_table.quotas
    assert log.writes == 2
    own.put_account(replace(ann, enabled=False), [], BY)
    own.set_rules("anonymous", [RULE], BY, {Limit.CONNECTIONS: 5})
    assert log.writes == 3
    assert subject_of_user("anonymous") in own.quota_table.quotas


def test_what_is_left_of_a_name_is_nobodys_but_what_is_given_holds() -> None:
    own = service(0, ManualClock())
    own.put_account(User(name="ann", secret="password"), [RULE], BY, {Limit.CONNECTIONS: 5})
    own.write([("access-user", "ann", None)])  # by another shard, which knew no more of it
    own.put_account(User(name="ann", secret="other-password"), [RULE], BY)
    assert own.rules["ann"] == (RULE,)
    assert own.quota_table.quotas == {}
    own.write([("access-user", "ann", None)])
    own.put_user(User(name="ann", secret="other-password"), BY)
    assert own.rules == {}


def test_an_account_with_many_rules_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "RECORD_BYTES_MAX", 4096)
    log = Metadata()
    own = AccessService(log, clock=ManualClock(), shard=0)
    many = [RULE] * 400
    for user in (
        User(name="ann", secret="password"),
        User(name="ann", secret="password", enabled=False),
    ):
        own.put_account(user, many, BY, {Limit.CONNECTIONS: 5})
        (body,) = changes.encode_changes(log.last)
        assert len(body) > 2 * changes.RECORD_BYTES_MAX
        own.put_account(user, [], BY, {})
    own.set_rules("anonymous", many, BY, {Limit.CONNECTIONS: 5})
    assert len(changes.encode_changes(log.last)) == 1


@pytest.mark.parametrize("rules", [None, []])
def test_nobody_inherits_what_another_shard_gave_a_former_user(
    rules: list[AccessRule] | None,
) -> None:
    clock = ManualClock()
    own, away = service(0, clock), service(1, clock)
    own.put_user(User(name="ann", secret="password"), BY)
    away.merge(own.records())
    own.delete_user("ann", BY)
    clock.advance(10)
    away.set_rules("ann", [RULE], BY, {Limit.CONNECTIONS: 5})
    clock.advance(10)
    again = User(name="ann", secret="other-password")
    own.put_user(again, BY) if rules is None else own.put_account(again, rules, BY)
    own.merge(away.records())
    away.merge(own.records())
    assert own.digest() == away.digest()
    for one in (own, away):
        assert (one.rules, one.quota_table.quotas) == ({}, {})
        assert one.users == {"ann": again}


@pytest.mark.parametrize("wrong", ["rules", "quotas"])
def test_of_an_account_that_cannot_be_nothing_is_there(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rights, "RULES_MAX", 1)
    monkeypatch.setattr(access_edits, "QUOTAS_MAX", 1)
    own = service(0, ManualClock())
    own.put_account(User(name="bob", secret="password"), [RULE], BY, {Limit.CONNECTIONS: 5})
    records = own.records()
    rules = [RULE] * 2 if wrong == "rules" else [RULE]
    with pytest.raises(RequestError):
        own.put_account(User(name="ann", secret="password"), rules, BY, {Limit.CONNECTIONS: 5})
    with pytest.raises(RequestError):
        own.set_rules("anonymous", rules, BY, {Limit.CONNECTIONS: 5})
    assert own.records() == records


@pytest.mark.parametrize(
    "name", ["", "../ann", "a" * 65, "ann*", "\u0430nn", "ann\n", "User:ann", "anonymous", ".ann"]
)
def test_names_that_no_user_has(name: str) -> None:
    with pytest.raises(RequestError):
        service(0, ManualClock()).put_user(User(name=name, secret="password"), BY)


@pytest.mark.parametrize(
    "record",
    [
        ["topic", "ann", [1, 0], {}],
        ["access-user", "../ann", [1, 0], None],
        ["access-user", "ann", [1, 0], {}],
        ["access-rules", "ann", [1, 0], [{"resource": 1}]],
        ["access-user", "ann", [1], None],
    ],
)
def test_records_that_are_none_are_refused(record: list[Any]) -> None:
    own = service(0, ManualClock())
    with pytest.raises((ValueError, KeyError, TypeError)):
        own.merge([record])
    assert own.records() == []


def test_the_audit_log_says_who_what_and_from_where(caplog: pytest.LogCaptureFixture) -> None:
    own = service(0, ManualClock())
    with caplog.at_level("INFO", logger="imago.audit"):
        own.put_user(User(name="ann", secret="first-password"), BY)
        own.put_user(User(name="ann", secret="other-password"), BY)
        own.set_rules("ann", [RULE], BY)
        own.delete_user("ann", BY)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" from ")[0] for line in lines] == [
        "user ann by the tests",
        "user ann with new credentials by the tests",
        "rules of ann by the tests",
        "user ann by the tests",
    ]
    assert all(" from nowhere: " in line and " -> " in line for line in lines)
    assert "password" not in "".join(lines).replace('"password":true', "")
