"""What a file of topics and groups may say, and what has to change for it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import yaml

from imago_broker.model.groups import GroupConfig
from imago_cli.declared.changes import changes, kept_by_prune
from imago_cli.declared.present import PresentState
from imago_cli.declared.wanted import wanted_state
from imago_cli.exits import CommandUsageError
from imago_cli.yaml_text import dump, read, scalar


def topic(name: str, *queues: int, perm: int = 6, **attributes: str) -> dict[str, Any]:
    """One topic as the list of a cluster has it, with so many queues on each shard."""
    shards = [
        {"id": shard, "writeQueues": count, "readQueues": count or 4, "perm": perm, "online": True}
        for shard, count in enumerate(queues)
    ]
    own = {name.replace("_", "."): value for name, value in attributes.items()}
    return {"name": name, "order": False, "attributes": own, "shards": shards}


def group(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "settings": asdict(GroupConfig(name=name, **settings))}


PRESENT = PresentState(
    [
        topic("orders", 4, 4, retention_ms="1000", sealed="x"),
        topic("bills", 4, 8),
        topic("closed", 0),
    ],
    [
        group("billing", retry_max_times=3),
        group("IMAGO_CLI"),
        {"name": "metaq-only", "settings": None},
    ],
)


def told(tree: object, *, prune: bool = False) -> list[str]:
    found = changes(wanted_state(tree, "file", prune=prune), PRESENT, prune=prune)
    return [str(each) for each in found]


def test_what_is_exported_says_nothing_new() -> None:
    assert PRESENT.topics == {
        "orders": {
            "queues": 4,
            "perm": 6,
            "order": False,
            "attributes": {"retention.ms": "1000"},
        },
        "bills": {"queues": 4, "perm": 6, "order": False},
    }
    assert (PRESENT.differing, PRESENT.sealed) == (["bills"], ["closed"])
    assert PRESENT.groups.keys() == {"billing"}
    tree = {"topics": {"orders": PRESENT.topics["orders"]}, "groups": PRESENT.groups}
    assert told(tree) == []
    assert told(read("\n".join(dump(tree)), "file")) == [], "and so does its text"


@pytest.mark.parametrize(
    ("tree", "wanted"),
    [
        ({"topics": {"orders": None}}, []),
        ({"topics": {"orders": {"queues": 8}}}, ["topic orders: queues 4 -> 8"]),
        ({"topics": {"orders": {"readQueues": 8}}}, ["topic orders: readQueues 4 -> 8"]),
        ({"topics": {"bills": {"queues": 8}}}, ["topic bills: queues 4 or 8 -> 8"]),
        ({"topics": {"bills": {"queues": 4}}}, ["topic bills: queues 4 or 8 -> 4"]),
        ({"topics": {"closed": {"queues": 9, "perm": 4}}}, []),
        ({"topics": {"closed": {"order": True}}}, ["topic closed: order false -> true"]),
        (
            {"topics": {"orders": {"attributes": {"retention.ms": "7d", "metaq.stat": True}}}},
            ["topic orders: retention.ms 1000 -> 604800000, metaq.stat (none) -> true"],
        ),
        ({"topics": {"orders": {"attributes": {"retention.ms": 1000}}}}, []),
        ({"topics": {"new": {}}}, ["topic new: new"]),
        (
            {"topics": {"new": {"queues": 2, "attributes": {"dialects": "rocketmq"}}}},
            ["topic new: new, queues 2, dialects rocketmq"],
        ),
        ({"groups": {"billing": {"retry_max_times": 3}}}, []),
        (
            {"groups": {"billing": {"retry_max_times": 5, "consume_enable": False}}},
            ["group billing: retry_max_times 3 -> 5, consume_enable true -> false"],
        ),
        ({"groups": {"new": {"retry_queues": 2}}}, ["group new: new, retry_queues 2"]),
    ],
)
def test_only_what_differs_changes(tree: object, wanted: list[str]) -> None:
    assert told(tree) == wanted


def test_nothing_is_deleted_but_by_a_prune_of_the_kinds_that_are_named() -> None:
    assert told({"topics": {"orders": {}}}) == []
    assert told({"topics": {"orders": {}}}, prune=True) == ["topic bills: delete"]
    assert told({"groups": {}}, prune=True) == ["group billing: delete"]


def test_a_prune_never_deletes_what_an_export_leaves_out() -> None:
    tree = {"topics": PRESENT.topics, "groups": PRESENT.groups}
    assert not [each for each in told(tree, prune=True) if each.endswith("delete")]
    assert told({"topics": {}, "groups": {}}, prune=True) == [
        "topic bills: delete",
        "topic orders: delete",
        "group billing: delete",
    ], "closed, IMAGO_CLI and metaq-only are in no export"
    nothing = wanted_state({"topics": {}}, "file")
    assert kept_by_prune(nothing, PRESENT, prune=True) == ["closed"]
    assert kept_by_prune(nothing, PRESENT, prune=False) == []
    named = wanted_state({"topics": {"closed": {}}}, "file")
    assert kept_by_prune(named, PRESENT, prune=True) == []


@pytest.mark.parametrize("text", ["topics:", "groups: {billing: {}}\ntopics:\n"])
def test_a_file_that_is_cut_off_prunes_nothing(text: str) -> None:
    assert told(read(text, "file")) == []
    with pytest.raises(CommandUsageError) as refused:
        told(read(text, "file"), prune=True)
    assert "nothing stands behind topics:, and --prune would delete" in refused.value.message
    assert "`topics: {}` asks for that" in refused.value.cure


def test_a_file_that_was_made_without_all_shards_prunes_nothing() -> None:
    away = [{"shard": "shard-1", "since": None, "why": "its master did not answer"}]
    tree = {"topics": PRESENT.topics, "groups": {}, "missing": away}
    said = read("\n".join(dump(tree)), "file")
    assert not any("delete" in each for each in told(said))
    with pytest.raises(CommandUsageError, match="was made while shards were away"):
        told(said, prune=True)
    assert told({**tree, "missing": []}, prune=True)[-1] == "group billing: delete"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"topics": {"a": {"queues": 4}, "b": {}, "a": {}}}', "file: a is given twice"),
        ('{"topics": {}, "topics": {}}', "file: topics is given twice"),
        ("topics:\n  a: {queues: 4}\n  'a':\n", "file: a is given twice, in lines 2 and 3"),
        ("topics:\n  a:\n    queues: 4\n    queues: 2", "queues is given twice, in lines 3 and 4"),
    ],
)
def test_a_key_that_is_given_twice_is_named(text: str, problem: str) -> None:
    with pytest.raises(CommandUsageError) as refused:
        read(text, "file")
    assert refused.value.message.endswith(problem)


def test_a_key_that_a_merge_brings_is_not_given_twice() -> None:
    text = "x: {y: &b {<<: &a {queues: 4}, queues: 2}}\nz: {<<: *b, perm: 4}"
    assert read(text, "file") == {"x": {"y": {"queues": 2}}, "z": {"queues": 2, "perm": 4}}


def test_what_is_sent_is_what_differs() -> None:
    tree = {"topics": {"orders": {"queues": 8, "perm": 6, "attributes": {"metaq.stat": "true"}}}}
    (change,) = changes(wanted_state(tree, "file"), PRESENT, prune=False)
    assert change.body == {"queues": 8, "attributes": {"metaq.stat": "true"}}
    (change,) = changes(wanted_state({"groups": {"%a|b": {}}}, "f"), PRESENT, prune=False)
    assert change.path == "/admin/v1/groups/%25a%7Cb"


@pytest.mark.parametrize(
    ("tree", "problem", "cure"),
    [
        ([], "file: []", ""),
        ({}, "file: says nothing", "topics and groups"),
        ({"missing": []}, "file: says nothing", "topics and groups"),
        ({"topic": {}}, "no such key: topic", "did you mean topics?"),
        ({"topics": ["orders"]}, 'topics: ["orders"]', ""),
        ({"topics": {1: {}}}, "topics: 1 is no text", "quote it"),
        ({"topics": {"a b": {}}}, "letters, digits", ""),
        ({"topics": {"TBW102": {}}}, "the brokers' own", "leave it out"),
        ({"topics": {"a": {"queue": 1}}}, "topic a: no such key: queue", "did you mean queues?"),
        ({"topics": {"a": {"queues": 0}}}, "topic a: queues: 0, must be 1 to 65536", ""),
        ({"topics": {"a": {"queues": "4"}}}, 'queues: "4", must be a whole number', ""),
        ({"topics": {"a": {"queues": 4, "readQueues": 4}}}, "stands for both", "name one or both"),
        ({"topics": {"a": {"perm": 7}}}, "topic a: perm: 7, must be 4", ""),
        ({"topics": {"a": {"order": 1}}}, "order: 1, must be true or false", ""),
        ({"topics": {"a": {"attributes": {"x": "1"}}}}, "'x': no such attribute", ""),
        ({"topics": {"a": {"attributes": {"retention.ms": "soon"}}}}, "retention.ms: 'soon'", ""),
        ({"topics": {"a": {"attributes": {"retention.ms": []}}}}, "must be a text", ""),
        ({"groups": {"a": {"retry": 1}}}, "group a: no such key: retry", "retry_queues"),
        ({"groups": {"a": {"retry_queues": -1}}}, "retry_queues: -1, must be 0 to", ""),
        ({"groups": {"a b": {}}}, "a group's name consists of", ""),
    ],
)
def test_what_cannot_be_is_named(tree: object, problem: str, cure: str) -> None:
    with pytest.raises(CommandUsageError) as refused:
        wanted_state(tree, "file")
    assert problem in refused.value.message
    assert cure in refused.value.cure


@pytest.mark.parametrize("value", ["orders", "NO", "1", "a: b", "é", "null", "", True, 7, "-", {}])
def test_yaml_reads_what_is_written(value: object) -> None:
    assert yaml.safe_load(scalar(value)) == value
    tree = {"topics": {str(value): {"queues": value}}}
    assert yaml.safe_load("\n".join(dump(tree))) == tree


def test_what_is_no_yaml_is_named_with_its_file() -> None:
    with pytest.raises(CommandUsageError, match=r"cluster\.yaml: is neither JSON nor YAML"):
        read("{", "cluster.yaml")
    assert read("", "file") is None
