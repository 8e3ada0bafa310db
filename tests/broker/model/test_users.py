"""Credentials of users, and lists of addresses in RocketMQ 4.9's form."""

from __future__ import annotations

import pytest

from imago_broker.model.access.users import (
    User,
    hash_of,
    is_hash_of,
    new_token,
    rules_from_json,
    rules_to_json,
    token_hash,
    token_parts,
    user_problem,
)
from imago_broker.model.access.white_addresses import is_listed, list_problem


def test_a_password_is_known_by_its_hash() -> None:
    kept = hash_of("a password", b"salt of sixteen b")
    assert "a password" not in kept
    assert is_hash_of(kept, "a password")
    assert not is_hash_of(kept, "another one")
    assert not is_hash_of("", "a password")
    assert User(name="ann", hashed=kept).has_password("a password")
    assert User(name="ann", secret="a password").has_password("a password")
    assert not User(name="ann", secret="a password").has_password("a passwore")


def test_tokens_are_kept_as_hashes() -> None:
    user, text = new_token(User(name="ann.b"), expires_ms=0, note="for the tests")
    parts = token_parts(text)
    assert parts is not None
    name, number, secret = parts
    [kept] = user.tokens
    assert (name, number, token_hash(secret)) == ("ann.b", kept.number, kept.hashed)
    assert secret not in str(user.to_json())
    assert kept.hashed not in str(user.shown())
    assert User.from_json("ann.b", user.to_json()) == user
    for wrong in ("", "imt", "imt.a.b", "x.a.b.c", "imt..b.c", "imt.a..c"):
        assert token_parts(wrong) is None


def test_a_user_has_so_many_tokens_and_no_more() -> None:
    user = User(name="ann", secret="password")
    for _ in range(33):
        assert user_problem(user) is None
        user, _ = new_token(user, expires_ms=0, note="")
    assert "at most 32 tokens" in (user_problem(user) or "")


def test_rules_are_read_as_they_are_written() -> None:
    told = [
        {
            "effect": "Deny",
            "resource": {"type": "Topic", "name": "orders", "patternType": "prefix"},
            "operations": ["publish", "subscribe"],
            "hosts": ["10.0.0.0/8"],
        },
        {"effect": "Allow", "resource": {"type": "Cluster"}, "operations": ["describe"]},
    ]
    assert rules_to_json(rules_from_json(told)) == told


@pytest.mark.parametrize(
    "rule",
    [
        1,
        {"resource": {"type": "Topic", "name": "a"}},
        {"resource": {"type": "Queue", "name": "a"}, "operations": ["publish"]},
        {"resource": {"type": "Topic", "name": "a"}, "operations": ["fly"]},
        {"resource": {"type": "Topic", "name": "a"}, "operations": "publish"},
        {"resource": {"type": "Topic", "name": "a", "x": 1}, "operations": ["publish"]},
        {"resource": {"type": "Topic", "name": "a"}, "operations": ["publish"], "effect": "No"},
        {"resource": {"type": "Topic"}, "operations": ["publish"]},
        {"resource": {"type": "Topic", "name": "a"}, "operations": ["publish"], "hosts": ["home"]},
    ],
)
def test_rules_that_are_none_are_refused(rule: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        rules_from_json([rule])


@pytest.mark.parametrize(
    ("address", "entry", "listed"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.4", "10.1.2.3", False),
        ("10.1.2.3", "10.1.2.*", True),
        ("10.1.2.3", "10.1.*.*", True),
        ("10.1.2.3", "10.2.*.*", False),
        ("10.1.2.3", "10.1.2.1-3", True),
        ("10.1.2.4", "10.1.2.1-3", False),
        ("10.1.2.3", "10.1.2.{1,3}", True),
        ("10.1.2.2", "10.1.2.{1,3}", False),
        ("10.1.2.2", "10.9.9.9, 10.1.2.2", True),
        ("::ffff:10.1.2.3", "10.1.2.*", True),
        ("2001:db8::1", "2001:db8::1", True),
        ("2001:db8::1", "2001:db8:0:0:0:0:0:*", True),
        ("2001:db8::2:1", "2001:db8:0:0:0:0:0:*", False),
        ("10.1.2.3", "2001:db8:0:0:0:0:0:*", False),
        ("10.1.2.3", "*", True),
        ("2001:db8::1", "*", True),
        ("nowhere", "*", False),
    ],
)
def test_white_addresses(address: str, entry: str, listed: bool) -> None:
    assert list_problem([entry]) is None
    assert is_listed(address, [entry]) is listed


@pytest.mark.parametrize(
    "entry",
    ["10.1.2", "10.1.2.256", "10.1.2.3-1", "home", "10.1.2.3/8", "", ",", "1" * 2000, "::*::*"],
)
def test_entries_that_name_no_address(entry: str) -> None:
    assert "is no address" in (list_problem([entry]) or "")
    assert not is_listed("10.1.2.3", [entry])
