"""Limits as values: whose they are, what they may be, and whom they are about."""

from __future__ import annotations

from typing import Any

import pytest

from imago_broker.model.access.access import AccessKind, Need
from imago_broker.model.access.quotas import (
    NO_QUOTAS,
    Limit,
    QuotaTable,
    SubjectKind,
    parse_subject,
    quotas_from_json,
    quotas_to_json,
)


@pytest.mark.parametrize("text", ["user:ann", "user:anonymous", "topic:a", "topic:a*", "group:g*"])
def test_subjects_are_read_as_they_are_written(text: str) -> None:
    assert str(parse_subject(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "ann", "user:", "user:an*", "user:../x", "group:g", "cluster:x", "topic:", "topic:*"),
        *("topic:a*b", "topic:a b", "topic:\u0430", "topic:" + "a" * 256, "User:ann"),
    ],
)
def test_subjects_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|limits|sign|letters"):
        parse_subject(text)


@pytest.mark.parametrize(
    ("subject", "value", "words"),
    [
        ("user:ann", [], "an object with"),
        ("user:ann", {"topics": 1}, "has no limit 'topics'"),
        ("topic:a", {"queues": 1}, "has no limit 'queues'"),
        ("topic:a*", {"connections": 1}, "has no limit"),
        ("group:g*", {"producerBytesPerSecond": 1}, "has no limit"),
        ("user:ann", {"connections": 0}, "above 0"),
        ("user:ann", {"connections": -1}, "above 0"),
        ("user:ann", {"connections": True}, "above 0"),
        ("user:ann", {"connections": 1.5}, "above 0"),
        ("user:ann", {"connections": "1"}, "above 0"),
        ("user:ann", {"connections": 1 << 60}, "above 0"),
    ],
)
def test_limits_that_cannot_be(subject: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        quotas_from_json(parse_subject(subject), value)


def test_whose_limits_hold() -> None:
    told: dict[str, dict[str, int]] = {
        "user:ann": {"connections": 5, "producerBytesPerSecond": 100},
        "topic:orders": {"consumerRequestsPerSecond": 10},
        "topic:ord*": {"producerBytesPerSecond": 7, "topics": 3},
        "topic:o*": {"topics": 9},
        "group:team-*": {"groups": 2},
    }
    quotas = {
        subject: quotas_from_json(subject, value)
        for subject, value in ((parse_subject(text), value) for text, value in told.items())
    }
    assert {str(s): quotas_to_json(q) for s, q in quotas.items()} == told
    table = QuotaTable(quotas)

    def of_traffic(user: str, topic: str) -> set[str]:
        return {str(each) for each in table.of_traffic(user, topic)}

    assert of_traffic("ann", "orders") == {"user:ann", "topic:orders", "topic:ord*"}
    assert of_traffic("bob", "orders2") == {"topic:ord*"}
    assert of_traffic("bob", "other") == set(), "it has a limit of topics alone"
    assert of_traffic("ann", "") == {"user:ann"}
    of_topics = table.grown(Limit.TOPICS, table.about(SubjectKind.TOPIC, "orders"))
    assert sorted((str(s), most) for s, most in of_topics) == [("topic:o*", 9), ("topic:ord*", 3)]
    assert [str(each) for each in table.about(SubjectKind.GROUP, "team-a")] == ["group:team-*"]
    needs = [Need((), kind, "orders2") for kind in (AccessKind.TOPIC, AccessKind.GROUP)]
    assert [table.limits("bob", need) for need in needs] == [True, False]
    assert [table.limits("ann", need) for need in needs] == [True, True]
    assert not NO_QUOTAS.limits("ann", needs[0])
