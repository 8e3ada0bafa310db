"""What is refused, by the same table that an API server is asked."""

from __future__ import annotations

import pytest

from imago_operator.errors import InvalidError
from imago_operator.spec.kinds import KINDS, nodes
from imago_testing.kubernetes.custom_resources import BAD_EDITS, GOOD, BadEdit, manifest

KIND = {kind.name: kind for kind in KINDS}


@pytest.mark.parametrize("bad", BAD_EDITS, ids=[f"{n}-{b.kind}" for n, b in enumerate(BAD_EDITS)])
def test_bad_edits_are_refused_with_our_words(bad: BadEdit) -> None:
    kind = KIND[bad.kind]
    assert bad.old is None or list(kind.problems(bad.old)) == []

    found = list(kind.problems(bad.object, bad.old))

    if bad.by_rule:
        assert [p for p in found if bad.said in p.message], found
    else:
        assert [p for p in found if p.path.startswith(bad.said)], found


def test_every_rule_is_broken_by_an_edit() -> None:
    """A rule that nothing breaks may as well say nothing."""
    broken = {
        (bad.kind, p.message)
        for bad in BAD_EDITS
        for p in KIND[bad.kind].problems(bad.object, bad.old)
    }
    known = {(kind.name, rule.message) for kind in KINDS for rule in kind.rules}
    assert known - broken == set()


@pytest.mark.parametrize("kind", GOOD)
def test_good_objects_are_read(kind: str) -> None:
    good = manifest(kind)

    assert list(KIND[kind].problems(good, good)) == []
    assert KIND[kind].read(good)


def test_a_wrong_object_is_named_by_its_paths() -> None:
    wrong = manifest("ImagoCluster", {"spec.brokers.shards": 99, "spec.brokers.colour": "red"})

    with pytest.raises(InvalidError) as caught:
        KIND["ImagoCluster"].read(wrong)

    said = str(caught.value)
    assert "spec.brokers.shards: must be at most 64, not 99" in said
    assert "spec.brokers.colour: is no field of it" in said


def test_an_object_without_a_spec_is_refused() -> None:
    assert [p.path for p in KIND["ImagoTopic"].problems({"metadata": {"name": "x"}})] == ["spec"]


def test_paths_reach_every_item_of_a_list() -> None:
    root = {"spec": {"items": [{"a": 1}, {"a": 2}]}}
    assert list(nodes(root, "spec.items[].a")) == [("spec.items[0].a", 1), ("spec.items[1].a", 2)]
    assert list(nodes(root, "spec.none[].a")) == []
