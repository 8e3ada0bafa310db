"""What is wrong with nodes of MetaQ's tree: each kind is named at its node, and nothing else is."""

from __future__ import annotations

import pytest

from imago_broker.core.metaq.metaq_tree_check import FINDINGS_MAX, TreeNode, check_tree

GOOD = {
    "/meta": "",
    "/meta/brokers": "",
    "/meta/brokers/ids": "",
    "/meta/brokers/ids/0": "meta://h:8123",
    "/meta/brokers/ids/0/master": "E meta://h:8123",
    "/meta/brokers/ids/0/master_config_checksum": "E 4294967295",
    "/meta/brokers/ids/0/slave1": "E meta://h:8124",
    "/meta/brokers/topics": "",
    "/meta/brokers/topics/t": "",
    "/meta/brokers/topics/t/0-m": "E 2",
    "/meta/brokers/topics-pub": "",
    "/meta/brokers/topics-pub/empty": "",
    "/meta/brokers/topics-pub/t": "",
    "/meta/brokers/topics-pub/t/0-m": 'E {"numParts":2,"broker":"0-m"}',
    "/meta/brokers/topics-sub": "",
    "/meta/brokers/topics-sub/t": "",
    "/meta/brokers/topics-sub/t/0-m": 'E {"broker":"0-m","numParts":2}',
    "/meta/brokers/topics-sub/t/0-s1": 'E {"numParts":2,"broker":"0-s1"}',
    "/meta/consumers": "",
    "/meta/consumers/g": "",
    "/meta/consumers/g/ids": "",
    "/meta/consumers/g/ids/g_h-1": "E t",
    "/meta/consumers/g/owners": "",
    "/meta/consumers/g/owners/t": "",
    "/meta/consumers/g/owners/t/0-0": "E g_h-1",
    "/meta/consumers/g/offsets": "",
    "/meta/consumers/g/offsets/t": "",
    "/meta/consumers/g/offsets/t/0-0": "-5468922380556435456-44",
    "/meta/consumers/g/offsets/t/0-1": "1024",
}


def findings(**changes: str | None) -> dict[str, str]:
    told = {path: data for path, data in {**GOOD, **changes}.items() if data is not None}
    nodes = {
        path: TreeNode(data.removeprefix("E "), data.startswith("E "))
        for path, data in told.items()
    }
    return dict(check_tree(nodes, "/meta"))


def test_a_tree_as_the_original_writes_it_is_right() -> None:
    assert findings() == {}


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        ("brokers/ids/x", "", "no number"),
        ("brokers/ids/0", "", "clients before 1.4.0 go to none"),
        ("brokers/ids/1", "meta://h:1", "there is no master"),
        ("brokers/ids/0/slave2", "E h:1", "no address"),
        ("brokers/ids/0/slave2", "meta://h:1", "persistent"),
        ("brokers/ids/0/master_config_checksum", "E x", "no checksum"),
        ("brokers/topics-pub/t/0", "E x", "named neither"),
        ("brokers/topics-pub/t/1-m", 'E {"numParts":2,"broker":"1-m"}', "has no master"),
        ("brokers/topics-sub/t/0-s2", 'E {"numParts":2,"broker":"0-s2"}', "has no slave2"),
        ("brokers/topics-pub/t/0-m", 'E {"numParts":2,"broker":"0-m","x":1}', "alone"),
        ("brokers/topics-pub/t/0-m", 'E {"numParts":0,"broker":"0-m"}', "no number of"),
        ("brokers/topics-pub/t/0-m", 'E {"numParts":2,"broker":"1-m"}', "names the broker"),
        ("brokers/topics-pub/t/0-m", '{"numParts":2,"broker":"0-m"}', "persistent"),
        ("brokers/topics-pub/t/0-m", "E 2", "alone"),
        ("brokers/topics/t/0-m", "E two", "no number of partitions"),
        ("consumers/g/owners/t/0-1", "E g_gone", "who is not there"),
        ("consumers/g/offsets/t/0-0", "here", "no offset"),
    ],
)
def test_what_misleads_clients_is_named(path: str, data: str, said: str) -> None:
    found = findings(**{f"/meta/{path}": data})
    assert list(found) == [f"/meta/{path}"]
    assert said in found[f"/meta/{path}"]


def test_a_master_that_has_gone_is_missed_by_all_its_topics() -> None:
    found = findings(**{"/meta/brokers/ids/0/master": None})
    assert len(found) == 4
    assert "there is no master" in found["/meta/brokers/ids/0"]


def test_what_is_told_has_an_end() -> None:
    many = {f"/meta/brokers/ids/x{number}": "" for number in range(2 * FINDINGS_MAX)}
    assert len(findings(**many)) == FINDINGS_MAX
